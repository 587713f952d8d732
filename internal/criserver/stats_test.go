package criserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func u64(n uint64) *uint64 { return &n }

func number(n uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: n} }

// Every field of the messages, each with a value of its own.
func TestStatsAreEncoded(t *testing.T) {
	at := time.Unix(0, 42)
	pressure := &pod.Pressure{Full: &pod.Stall{Total: 1, Avg10: 2, Avg60: 3, Avg300: 4}, Some: &pod.Stall{Total: 5, Avg10: 6, Avg60: 7, Avg300: 8}}
	psi := &cri.PsiStats{Full: &cri.PsiData{Total: 1, Avg10: 2, Avg60: 3, Avg300: 4}, Some: &cri.PsiData{Total: 5, Avg10: 6, Avg60: 7, Avg300: 8}}
	cpu := &pod.CPUUsage{At: at, Total: u64(10), Rate: u64(11), Pressure: pressure}
	memory := &pod.MemoryUsage{
		At: at, Total: u64(20), WorkingSet: u64(21), Available: u64(22), RSS: u64(23), MinorFaults: u64(24), MajorFaults: u64(25), Pressure: pressure,
	}
	criCPU := &cri.CpuUsage{Timestamp: 42, UsageCoreNanoSeconds: number(10), UsageNanoCores: number(11), Psi: psi}
	criMemory := &cri.MemoryUsage{
		Timestamp: 42, UsageBytes: number(20), WorkingSetBytes: number(21), AvailableBytes: number(22), RssBytes: number(23),
		PageFaults: number(24), MajorPageFaults: number(25), Psi: psi,
	}
	io, criIO := &pod.IOUsage{At: at, Pressure: pressure}, &cri.IoUsage{Timestamp: 42, Psi: psi}
	f := newFake()
	f.used = pod.ContainerUsage{
		CPU: cpu, Memory: memory, IO: io,
		Swap:  &pod.SwapUsage{At: at, Total: u64(30), Available: u64(31)},
		Layer: &pod.LayerUsage{At: at, Path: "/disk", Bytes: 40, Inodes: 41},
	}
	f.podUsed = pod.Usage{
		CPU: cpu, Memory: memory, IO: io, Processes: &pod.ProcessUsage{At: at, Count: 50},
		Network: &pod.NetworkUsage{At: at, Interfaces: []pod.InterfaceUsage{
			{Name: "net1", RxBytes: 60, RxError: 61, TxBytes: 62, TxError: 63},
			{Name: "eth0", Default: true, RxBytes: 64, RxError: 65, TxBytes: 66, TxError: 67},
		}},
	}
	s := f.server(t, nil)
	c := f.pods[0].Containers[2]
	want := &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{
			Id: string(c.ID), Metadata: &cri.ContainerMetadata{Name: "cRunning", Attempt: 1}, Labels: c.Config.Labels,
		},
		Cpu: criCPU, Memory: criMemory, Io: criIO,
		Swap:          &cri.SwapUsage{Timestamp: 42, SwapUsageBytes: number(30), SwapAvailableBytes: number(31)},
		WritableLayer: &cri.FilesystemUsage{Timestamp: 42, FsId: &cri.FilesystemIdentifier{Mountpoint: "/disk"}, UsedBytes: number(40), InodesUsed: number(41)},
	}
	got, err := sent(s.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: "222"}))
	if err != nil || !proto.Equal(got.Stats, want) {
		t.Errorf("got %v %v\nwant %v", got, err, want)
	}
	unknown := proto.Clone(want).(*cri.ContainerStats)
	unknown.Attributes.Id, unknown.Attributes.Metadata.Name, unknown.Attributes.Labels = strings.Repeat("4", 64), "cUnknown", map[string]string{"state": "Unknown"}
	wantPod := &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{
			Id: string(f.pods[0].ID), Metadata: &cri.PodSandboxMetadata{Name: "web", Uid: "u1", Namespace: "default", Attempt: 2},
			Labels: f.pods[0].Config.Labels, Annotations: f.pods[0].Config.Annotations,
		},
		Linux: &cri.LinuxPodSandboxStats{
			Cpu: criCPU, Memory: criMemory, Io: criIO, Process: &cri.ProcessUsage{Timestamp: 42, ProcessCount: number(50)},
			Network: &cri.NetworkUsage{
				Timestamp:        42,
				DefaultInterface: &cri.NetworkInterfaceUsage{Name: "eth0", RxBytes: number(64), RxErrors: number(65), TxBytes: number(66), TxErrors: number(67)},
				Interfaces:       []*cri.NetworkInterfaceUsage{{Name: "net1", RxBytes: number(60), RxErrors: number(61), TxBytes: number(62), TxErrors: number(63)}},
			},
			Containers: []*cri.ContainerStats{want, unknown},
		},
	}
	gotPod, err := sent(s.PodSandboxStats(t.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: "aaa"}))
	if err != nil || !proto.Equal(gotPod.Stats, wantPod) {
		t.Errorf("got %v %v\nwant %v", gotPod, err, wantPod)
	}
}

// What was not measured is not there. A zero would be a measurement.
func TestWhatWasNotMeasuredIsNil(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	c, err := sent(s.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: "222"}))
	if err != nil || c.Stats.Cpu != nil || c.Stats.Memory != nil || c.Stats.Swap != nil || c.Stats.Io != nil || c.Stats.WritableLayer != nil {
		t.Errorf("%v %v", c, err)
	}
	p, err := sent(s.PodSandboxStats(t.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: "aaa"}))
	if l := p.GetStats().GetLinux(); err != nil || l.Cpu != nil || l.Memory != nil || l.Io != nil || l.Process != nil || l.Network != nil {
		t.Errorf("%v %v", p, err)
	}
	f.used = pod.ContainerUsage{CPU: &pod.CPUUsage{}, Memory: &pod.MemoryUsage{}}
	c, err = sent(s.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: "222"}))
	if err != nil || c.Stats.Cpu.UsageCoreNanoSeconds != nil || c.Stats.Cpu.UsageNanoCores != nil || c.Stats.Cpu.Psi != nil || c.Stats.Memory.WorkingSetBytes != nil {
		t.Errorf("%v %v", c, err)
	}
}

func TestStatsOfWhatDoesNotRun(t *testing.T) {
	f := newFake()
	f.ended = map[string]error{}
	client := cri.NewRuntimeServiceClient(serve(t, f.server(t, nil)))
	for id, want := range map[string]codes.Code{
		"000": codes.NotFound, "111": codes.NotFound, "222": codes.OK, "333": codes.NotFound, "444": codes.OK, "none": codes.NotFound, "": codes.InvalidArgument,
	} {
		if _, err := client.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: id}); status.Code(err) != want {
			t.Errorf("container %q: %v", id, err)
		}
	}
	for id, want := range map[string]codes.Code{
		"aaa": codes.OK, "bbb": codes.NotFound, "ccc": codes.NotFound, "none": codes.NotFound, "": codes.InvalidArgument,
	} {
		if _, err := client.PodSandboxStats(t.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: id}); status.Code(err) != want {
			t.Errorf("pod %q: %v", id, err)
		}
	}
	// One that ends between the look at the record and the measurement, and one
	// that cannot be measured.
	for _, how := range []error{errdefs.ErrNotFound, errors.New("broken")} {
		f.ended[strings.Repeat("2", 64)] = how
		if _, err := client.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: "222"}); err == nil {
			t.Error("no error for a container that is gone")
		}
		l, err := client.ListContainerStats(t.Context(), &cri.ListContainerStatsRequest{})
		if err != nil || len(l.Stats) != 1 || l.Stats[0].Attributes.Metadata.Name != "cUnknown" {
			t.Errorf("%v: %v %v", how, l, err)
		}
		p, err := client.ListPodSandboxStats(t.Context(), &cri.ListPodSandboxStatsRequest{})
		if err != nil || len(p.Stats) != 1 || len(p.Stats[0].Linux.Containers) != 1 {
			t.Errorf("%v: %v %v", how, p, err)
		}
	}
	f.ended[strings.Repeat("a", 64)] = errdefs.ErrNotFound
	if p, err := client.ListPodSandboxStats(t.Context(), &cri.ListPodSandboxStatsRequest{}); err != nil || len(p.Stats) != 0 {
		t.Errorf("%v %v", p, err)
	}
}

func TestStatsFilters(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	for name, tt := range map[string]struct {
		filter *cri.ContainerStatsFilter
		want   string
	}{
		"none":            {nil, "cRunning cUnknown"},
		"empty":           {&cri.ContainerStatsFilter{}, "cRunning cUnknown"},
		"id":              {&cri.ContainerStatsFilter{Id: strings.Repeat("2", 64)}, "cRunning"},
		"short id":        {&cri.ContainerStatsFilter{Id: "222"}, "cRunning"},
		"ended":           {&cri.ContainerStatsFilter{Id: "333"}, ""},
		"unknown id":      {&cri.ContainerStatsFilter{Id: "zzz"}, ""},
		"pod":             {&cri.ContainerStatsFilter{PodSandboxId: "aa"}, "cRunning cUnknown"},
		"other pod":       {&cri.ContainerStatsFilter{PodSandboxId: "bb"}, ""},
		"unknown pod":     {&cri.ContainerStatsFilter{PodSandboxId: "zz"}, ""},
		"both ids":        {&cri.ContainerStatsFilter{Id: "222", PodSandboxId: "aa"}, "cRunning"},
		"id of other pod": {&cri.ContainerStatsFilter{Id: "222", PodSandboxId: "bb"}, ""},
		"label":           {&cri.ContainerStatsFilter{LabelSelector: map[string]string{"state": "Unknown"}}, "cUnknown"},
		"label and id":    {&cri.ContainerStatsFilter{Id: "222", LabelSelector: map[string]string{"state": "Unknown"}}, ""},
	} {
		f.calls = nil
		l, err := sent(s.ListContainerStats(t.Context(), &cri.ListContainerStatsRequest{Filter: tt.filter}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range l.Stats {
			got = append(got, c.Attributes.Metadata.Name)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if len(f.calls) != len(got) {
			t.Errorf("%s: measured %q", name, f.calls)
		}
	}
	for name, tt := range map[string]struct {
		filter *cri.PodSandboxStatsFilter
		want   int
	}{
		"none":  {nil, 1},
		"id":    {&cri.PodSandboxStatsFilter{Id: "aaa"}, 1},
		"ended": {&cri.PodSandboxStatsFilter{Id: "bbb"}, 0},
		"label": {&cri.PodSandboxStatsFilter{LabelSelector: map[string]string{"app": "web"}}, 1},
		"other": {&cri.PodSandboxStatsFilter{Id: "aaa", LabelSelector: map[string]string{"app": "db"}}, 0},
	} {
		if l, err := sent(s.ListPodSandboxStats(t.Context(), &cri.ListPodSandboxStatsRequest{Filter: tt.filter})); err != nil || len(l.Stats) != tt.want {
			t.Errorf("%s: %v %v", name, l, err)
		}
	}
}

func TestStatsEndWithTheirCaller(t *testing.T) {
	s := newFake().server(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sent(s.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := sent(s.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
