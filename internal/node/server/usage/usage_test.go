package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/node/volume"
)

var machine = map[string]string{
	"proc/stat":                             "cpu  1000 100 200 9999 50 7 8 9 1 1\ncpu0 1 1 1 1 1 1 1 1 1 1\nbtime 1700000000\n",
	"proc/meminfo":                          "MemTotal:       1000 kB\nMemFree:         400 kB\nInactive(file):  100 kB\nAnonPages:       50 kB\nSwapTotal:       200 kB\nSwapFree:        150 kB\n",
	"proc/vmstat":                           "pgfault 12\npgmajfault 3\n",
	"proc/loadavg":                          "0.1 0.2 0.3 2/345 999\n",
	"proc/sys/kernel/pid_max":               "32768\n",
	"proc/sys/kernel/threads-max":           "20000\n",
	"proc/sys/kernel/random/boot_id":        "boot\n",
	"proc/sys/kernel/osrelease":             "6.1.0\n",
	"etc/os-release":                        "NAME=x\nPRETTY_NAME=\"Some Linux 12\"\n",
	"proc/pressure/cpu":                     "some avg10=1.50 avg60=0.25 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
	"proc/cpuinfo":                          "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n",
	"proc/net/dev":                          "Inter-| Receive | Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n  ens3:10 2 3 0 0 0 0 0 20 4 5 0 0 0 0 0\n  veth1: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n  pod1: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n",
	"proc/net/route":                        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\nens3 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0\n",
	"sys/class/net/pod1/ifindex":            "7\n",
	"sys/class/net/pod1/iflink":             "8\n",
	"sys/class/net/ens3/ifindex":            "2\n",
	"sys/class/net/ens3/iflink":             "2\n",
	"etc/machine-id":                        "machine\n",
	"sys/class/dmi/id/product_uuid":         "uuid\n",
	"sys/fs/cgroup/cgroup.controllers":      "cpu memory\n",
	"sys/fs/cgroup/kubepods/cpu.stat":       "usage_usec 5\nuser_usec 3\n",
	"sys/fs/cgroup/kubepods/memory.current": "4096\n",
	"sys/fs/cgroup/kubepods/memory.stat":    "anon 11\ninactive_file 96\npgfault 1\npgmajfault 0\n",
}

func hostDir(t *testing.T, change map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range machine {
		if with, ok := change[name]; ok {
			text = with
		}
		if text != "" {
			write(name, text)
		}
	}
	for name, text := range change {
		write(name, text)
	}
	return dir
}

// fake is a runtime with what a test puts into it. What is nil it does not know.
type fake struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient
	pods        []*runtimeapi.PodSandboxStats
	containers  []*runtimeapi.ContainerStats
	descriptors []*runtimeapi.MetricDescriptor
	metrics     []*runtimeapi.PodSandboxMetrics
	streams     bool
	err         error
}

var unimplemented = status.Error(codes.Unimplemented, "unknown method")

func (f *fake) ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	switch {
	case f.err != nil:
		return nil, f.err
	case f.pods == nil:
		return nil, unimplemented
	}
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: f.pods}, nil
}

func (f *fake) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest, ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{Stats: f.containers}, nil
}

func (f *fake) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest, ...grpc.CallOption) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	if f.descriptors == nil {
		return nil, unimplemented
	}
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: f.descriptors}, f.err
}

func (f *fake) ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: f.metrics}, nil
}

func (f *fake) StreamPodSandboxMetrics(context.Context, *runtimeapi.StreamPodSandboxMetricsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxMetricsResponse], error) {
	return &metricStream{f: f}, nil
}

type metricStream struct {
	grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxMetricsResponse]
	f    *fake
	sent int
}

func (s *metricStream) Recv() (*runtimeapi.StreamPodSandboxMetricsResponse, error) {
	if !s.f.streams {
		return nil, unimplemented
	}
	if s.sent == len(s.f.metrics) {
		return nil, io.EOF
	}
	s.sent++
	return &runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: s.f.metrics[s.sent-1 : s.sent]}, nil
}

func (f *fake) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	u := &runtimeapi.FilesystemUsage{Timestamp: 5e9, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"}, UsedBytes: val(77), InodesUsed: val(7)}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{u}}, nil
}

func val(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

func ctrStats(name string, base uint64) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: name + "-id", Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Labels: map[string]string{labelUID: "u1", labelName: "web", labelNamespace: "default"},
		},
		Cpu:           &runtimeapi.CpuUsage{Timestamp: 2e9, UsageCoreNanoSeconds: val(base * 1e9), UsageNanoCores: val(base)},
		Memory:        &runtimeapi.MemoryUsage{Timestamp: 3e9, WorkingSetBytes: val(base * 100), UsageBytes: val(base * 200)},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: 4e9, UsedBytes: val(base * 1000), InodesUsed: val(base)},
		Swap:          &runtimeapi.SwapUsage{Timestamp: 3e9, SwapUsageBytes: val(base), SwapAvailableBytes: val(10)},
	}
}

func podStats(attempt uint32, containers ...*runtimeapi.ContainerStats) *runtimeapi.PodSandboxStats {
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1", Attempt: attempt}},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu:        &runtimeapi.CpuUsage{Timestamp: 2e9, UsageCoreNanoSeconds: val(9e9)},
			Memory:     &runtimeapi.MemoryUsage{Timestamp: 3e9, WorkingSetBytes: val(900)},
			Network:    &runtimeapi.NetworkUsage{Timestamp: 6e9, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: val(1), TxBytes: val(2)}},
			Process:    &runtimeapi.ProcessUsage{ProcessCount: val(4)},
			Containers: containers,
		},
	}
}

func agentPod() *corev1.Pod {
	started := metav1.Unix(1700000100, 0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
			Volumes: []corev1.Volume{
				{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			},
		},
		Status: corev1.PodStatus{StartTime: &started, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", Image: "img:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}},
		}},
	}
}

func collector(t *testing.T, f *fake, change func(*Config)) *Collector {
	t.Helper()
	c := Config{
		NodeName: "n1", Runtime: f, Images: f, Root: t.TempDir(), Log: slog.New(slog.DiscardHandler), Host: hostDir(t, nil),
		Pods: func() []*corev1.Pod { return []*corev1.Pod{agentPod()} },
	}
	if change != nil {
		change(&c)
	}
	out, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSummary(t *testing.T) {
	logs := t.TempDir()
	if err := os.MkdirAll(filepath.Join(logs, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(logs, "a", "0.log"), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fake{pods: []*runtimeapi.PodSandboxStats{podStats(1, ctrStats("b", 2), ctrStats("a", 1)), podStats(0, ctrStats("old", 1))}}
	c := collector(t, f, func(c *Config) {
		c.Logs = func(*corev1.Pod) string { return logs }
		c.Volumes = func(context.Context) map[types.UID][]volume.Usage {
			return map[types.UID][]volume.Usage{"u1": {
				{Local: true, Bytes: 7, Inodes: 1},
				{Volume: "disk", Local: true, Bytes: 50, Inodes: 2, At: time.Unix(9, 0)},
				{Volume: "memory", Memory: true, Bytes: 1 << 40, At: time.Unix(9, 0)},
				{Volume: "data", Claim: "c", Bytes: 40, Inodes: 3, Capacity: 100, Available: 60, AllInodes: 10, Free: 7, At: time.Unix(9, 0)},
			}, "other": {{Volume: "x", Local: true, Bytes: 1 << 40}}}
		}
		c.Systems = []System{{Name: statsv1.SystemContainerPods, Cgroup: "/kubepods"}, {Name: "gone", Cgroup: "/gone"}}
	})
	s, err := c.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	n := s.Node
	if n.NodeName != "n1" || n.StartTime.Unix() != 1700000000 || *n.CPU.UsageCoreNanoSeconds != 1324*1e7 || n.CPU.PSI.Some.Total != 7000 || n.CPU.PSI.Some.Avg10 != 1.5 {
		t.Errorf("node: %+v %+v", n, n.CPU)
	}
	if m := n.Memory; *m.UsageBytes != 600<<10 || *m.WorkingSetBytes != 500<<10 || *m.AvailableBytes != 500<<10 || *m.RSSBytes != 50<<10 || *m.MajorPageFaults != 3 || m.PSI != nil {
		t.Errorf("memory: %+v", m)
	}
	if *n.Swap.SwapUsageBytes != 50<<10 || *n.Rlimit.MaxPID != 20000 || *n.Rlimit.NumOfRunningProcesses != 345 {
		t.Errorf("swap %+v, processes %+v", n.Swap, n.Rlimit)
	}
	if n.Network.Name != "ens3" || *n.Network.TxErrors != 5 || *n.Network.RxBytes != 10 || len(n.Network.Interfaces) != 1 {
		t.Errorf("network: %+v", n.Network)
	}
	if n.Fs == nil || *n.Fs.CapacityBytes == 0 || *n.Runtime.ImageFs.UsedBytes != 77 || n.Runtime.ContainerFs != n.Runtime.ImageFs {
		t.Errorf("file systems: %+v %+v", n.Fs, n.Runtime)
	}
	if len(n.SystemContainers) != 1 || *n.SystemContainers[0].Memory.WorkingSetBytes != 4000 || *n.SystemContainers[0].CPU.UsageCoreNanoSeconds != 5000 {
		t.Errorf("systems: %+v", n.SystemContainers)
	}
	if len(s.Pods) != 1 {
		t.Fatalf("pods: %+v", s.Pods)
	}
	p := s.Pods[0]
	if p.PodRef.UID != "u1" || p.StartTime.Unix() != 1700000100 || *p.CPU.UsageCoreNanoSeconds != 9e9 || *p.ProcessStats.ProcessCount != 4 || p.Network.Name != "eth0" || len(p.Network.Interfaces) != 1 || *p.Swap.SwapUsageBytes != 3 {
		t.Errorf("pod: %+v", p)
	}
	a := p.Containers[0]
	if a.Name != "a" || a.StartTime.Unix() != 1700000100 || *a.Rootfs.UsedBytes != 1000 || *a.Rootfs.CapacityBytes == 0 || *a.Logs.UsedBytes < 5000 || *a.Logs.InodesUsed != 2 {
		t.Errorf("container: %+v %+v", a, a.Logs)
	}
	if got, want := *p.EphemeralStorage.UsedBytes, 3000+*a.Logs.UsedBytes+57; got != want {
		t.Errorf("ephemeral storage is %d, want %d", got, want)
	}
	volumes, err := json.Marshal(p.VolumeStats)
	if err != nil || len(p.VolumeStats) != 3 {
		t.Fatalf("%s, %v", volumes, err)
	}
	const data = `,"availableBytes":60,"capacityBytes":100,"usedBytes":40,"inodesFree":7,"inodes":10,"inodesUsed":3,"name":"data","pvcRef":{"name":"c","namespace":"default"}}`
	if p.VolumeStats[0].Name != "disk" || p.VolumeStats[0].PVCRef != nil || p.VolumeStats[2].Time.Unix() != 9 || !strings.Contains(string(volumes), data) {
		t.Errorf("volumes: %s", volumes)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

func TestSummaryOfProcessorsAndMemoryAlone(t *testing.T) {
	c := collector(t, &fake{pods: []*runtimeapi.PodSandboxStats{podStats(0, ctrStats("a", 1))}}, nil)
	s, err := c.Summary(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Pods[0]
	if s.Node.Fs != nil || s.Node.Network != nil || s.Node.Runtime != nil || p.Network != nil || p.EphemeralStorage != nil || p.Containers[0].Rootfs != nil {
		t.Errorf("too much: %+v", s)
	}
	if p.CPU == nil || p.Memory == nil || p.Containers[0].CPU == nil || p.Swap == nil {
		t.Errorf("too little: %+v", p)
	}
}

// A runtime that knows only of containers.
func TestSummaryFromContainers(t *testing.T) {
	c := collector(t, &fake{containers: []*runtimeapi.ContainerStats{ctrStats("a", 1), ctrStats("b", 2), {Attributes: &runtimeapi.ContainerAttributes{Id: "foreign"}}}}, nil)
	s, err := c.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) != 1 || s.Pods[0].PodRef.Name != "web" || *s.Pods[0].CPU.UsageCoreNanoSeconds != 3e9 || *s.Pods[0].Memory.WorkingSetBytes != 300 || s.Pods[0].Memory.RSSBytes != nil {
		t.Errorf("%+v", s.Pods)
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collector(t, &fake{}, nil)
		cpu := func() *uint64 {
			t.Helper()
			s, _, err := c.processor(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return s.UsageNanoCores
		}
		if cpu() != nil {
			t.Error("a rate of one measurement")
		}
		time.Sleep(10 * time.Second)
		path := filepath.Join(c.cfg.Host, "proc/stat")
		text := strings.Replace(machine["proc/stat"], "cpu  1000", "cpu  2500", 1) // 15 s more
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := cpu(); r == nil || *r != 1.5e9 {
			t.Errorf("rate %v", r)
		}
		time.Sleep(time.Millisecond)
		if r := cpu(); r == nil || *r != 1.5e9 {
			t.Errorf("rate right after it: %v", r)
		}
	})
}

// The interface of a node that is a container is one end of a pair.
func TestDefaultRouteCounts(t *testing.T) {
	n, err := host{hostDir(t, map[string]string{"sys/class/net/ens3/iflink": "99\n"})}.network()
	if err != nil || n.Name != "ens3" || len(n.Interfaces) != 1 {
		t.Errorf("%+v %v", n, err)
	}
}

func TestCgroup1(t *testing.T) {
	h := host{hostDir(t, map[string]string{
		"sys/fs/cgroup/cpuacct/a/cpuacct.usage":        "123\n",
		"sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1000\n",
		"sys/fs/cgroup/memory/a/memory.stat":           "rss 1\ntotal_rss 5\ntotal_inactive_file 100\n",
	})}
	if err := os.Remove(h.path("sys/fs/cgroup/cgroup.controllers")); err != nil {
		t.Fatal(err)
	}
	cpu, m, err := h.cgroup("/a")
	if err != nil || *cpu.UsageCoreNanoSeconds != 123 || *m.WorkingSetBytes != 900 || *m.RSSBytes != 5 {
		t.Errorf("%+v %+v %v", cpu, m, err)
	}
}

// The machine that the test runs on has all of this, too.
func TestRealHost(t *testing.T) {
	h := host{"/"}
	if used, boot, err := h.processor(); err != nil || used <= 0 || boot.Year() < 2020 {
		t.Errorf("%v %v %v", used, boot, err)
	}
	if m, _, err := h.memory(); err != nil || *m.WorkingSetBytes == 0 || *m.AvailableBytes == 0 {
		t.Errorf("%+v %v", m, err)
	}
	if cpus, cores, sockets := h.topology(); cpus < 1 || cores < 1 || sockets < 1 || cores > cpus {
		t.Error(cpus, cores, sockets)
	}
	if _, err := h.network(); err != nil {
		t.Error(err)
	}
}

func resource(t *testing.T, c *Collector) string {
	t.Helper()
	var b strings.Builder
	if err := c.Resource(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that the time is 2000-01-01
		got := resource(t, collector(t, &fake{pods: []*runtimeapi.PodSandboxStats{podStats(0, ctrStats("a", 1), ctrStats("b", 2))}}, nil))
		for _, line := range []string{
			"# TYPE node_cpu_usage_seconds_total counter",
			"node_cpu_usage_seconds_total 13.24 946684800000",
			"node_memory_working_set_bytes 512000 946684800000",
			"node_swap_usage_bytes 51200 946684800000",
			`container_cpu_usage_seconds_total{container="a",namespace="default",pod="web"} 1 2000`,
			`container_memory_working_set_bytes{container="b",namespace="default",pod="web"} 200 3000`,
			`container_start_time_seconds{container="a",namespace="default",pod="web"} 1.7000001e+09`,
			`container_swap_usage_bytes{container="b",namespace="default",pod="web"} 2 3000`,
			`container_swap_limit_bytes{container="b",namespace="default",pod="web"} 12 3000`,
			`pod_cpu_usage_seconds_total{namespace="default",pod="web"} 9 2000`,
			`pod_memory_working_set_bytes{namespace="default",pod="web"} 900 3000`,
			`pod_swap_usage_bytes{namespace="default",pod="web"} 3 3000`,
			"resource_scrape_error 0", "scrape_error 0",
		} {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("no line %q in:\n%s", line, got)
			}
		}
		if strings.Contains(got, `container_start_time_seconds{container="b"`) {
			t.Error("b was never seen to start")
		}
		if strings.Count(got, "# TYPE container_cpu_usage_seconds_total ") != 1 {
			t.Error("a family is there twice")
		}
	})
}

func TestResourceWithoutRuntime(t *testing.T) {
	got := resource(t, collector(t, &fake{err: status.Error(codes.Unavailable, "gone")}, nil))
	if !strings.Contains(got, "\nresource_scrape_error 1\n") || !strings.Contains(got, "\nnode_cpu_usage_seconds_total 13.24 ") {
		t.Errorf("got:\n%s", got)
	}
}

func cadvisor(t *testing.T, f *fake) string {
	t.Helper()
	var b strings.Builder
	if err := collector(t, f, nil).Cadvisor(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCadvisor(t *testing.T) {
	for name, streams := range map[string]bool{"stream": true, "list": false} {
		t.Run(name, func(t *testing.T) {
			got := cadvisor(t, &fake{
				streams: streams,
				descriptors: []*runtimeapi.MetricDescriptor{
					{Name: "container_cpu_usage_seconds_total", Help: "Line\nand \\.", LabelKeys: []string{"id", "pod"}},
					{Name: "container_network_receive_bytes_total", Help: "Bytes.", LabelKeys: []string{"interface"}},
				},
				metrics: []*runtimeapi.PodSandboxMetrics{
					{
						Metrics: []*runtimeapi.Metric{{Name: "container_network_receive_bytes_total", MetricType: runtimeapi.MetricType_COUNTER, LabelValues: []string{"eth0"}, Value: val(5)}},
						ContainerMetrics: []*runtimeapi.ContainerMetrics{{Metrics: []*runtimeapi.Metric{
							{Name: "container_cpu_usage_seconds_total", MetricType: runtimeapi.MetricType_COUNTER, LabelValues: []string{"/x", `a"b`}, Value: val(7), Timestamp: 9e9},
							{Name: "container_cpu_usage_seconds_total", LabelValues: []string{"one of two"}, Value: val(8)},
							{Name: "unknown", Value: val(9)},
						}}},
					},
					{Metrics: []*runtimeapi.Metric{{Name: "container_network_receive_bytes_total", MetricType: runtimeapi.MetricType_COUNTER, LabelValues: []string{"eth1"}, Value: val(6)}}},
				},
			})
			for _, line := range []string{
				`container_cpu_usage_seconds_total{id="/x",pod="a\"b"} 7 9000`,
				"container_network_receive_bytes_total{interface=\"eth0\"} 5\ncontainer_network_receive_bytes_total{interface=\"eth1\"} 6",
				"# HELP container_network_receive_bytes_total Bytes.\n# TYPE container_network_receive_bytes_total counter",
				`machine_cpu_cores{boot_id="boot",machine_id="machine",system_uuid="uuid"} 2`,
				`machine_cpu_physical_cores{boot_id="boot",machine_id="machine",system_uuid="uuid"} 1`,
				`machine_memory_bytes{boot_id="boot",machine_id="machine",system_uuid="uuid"} 1024000`,
				"container_scrape_error 0",
			} {
				if !strings.Contains(got, line+"\n") {
					t.Errorf("no line %q in:\n%s", line, got)
				}
			}
			if !strings.Contains(got, `container_cpu_usage_seconds_total{cpu="total",container="",id="/",image="",name="",namespace="",pod=""} 13.24 `) {
				t.Errorf("no root cgroup in:\n%s", got)
			}
			if strings.Contains(got, "unknown") || strings.Contains(got, "one of two") {
				t.Errorf("what no descriptor fits is in:\n%s", got)
			}
		})
	}
}

// TestCadvisorOfMachine says what the machine is, and if that could not be read.
func TestCadvisorOfMachine(t *testing.T) {
	const version = `cadvisor_version_info{cadvisorRevision="",cadvisorVersion="",dockerVersion="",kernelVersion="6.1.0",osVersion="%s"} 1`
	for name, c := range map[string]struct {
		without []string
		want    []string
	}{
		"all of it":         {nil, []string{"machine_scrape_error 0", fmt.Sprintf(version, "Some Linux 12")}},
		"without memory":    {[]string{"proc/meminfo"}, []string{"machine_scrape_error 1", fmt.Sprintf(version, "Some Linux 12")}},
		"without a release": {[]string{"etc/os-release"}, []string{"machine_scrape_error 0", fmt.Sprintf(version, "Unknown")}},
	} {
		t.Run(name, func(t *testing.T) {
			collects := collector(t, &fake{}, nil)
			for _, file := range c.without {
				if err := os.Remove(collects.host.path(file)); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			if err := collects.Cadvisor(t.Context(), &out); err != nil {
				t.Fatal(err)
			}
			for _, line := range c.want {
				if !strings.Contains(out.String(), line+"\n") {
					t.Errorf("no line %q in:\n%s", line, &out)
				}
			}
		})
	}
}

func TestCadvisorFromStats(t *testing.T) {
	got := cadvisor(t, &fake{pods: []*runtimeapi.PodSandboxStats{podStats(0, ctrStats("a", 1))}})
	for _, line := range []string{
		`container_cpu_usage_seconds_total{cpu="total",container="a",id="a-id",image="img:1",name="a-id",namespace="default",pod="web"} 1 2000`,
		`container_memory_working_set_bytes{container="a",id="a-id",image="img:1",name="a-id",namespace="default",pod="web"} 100 3000`,
		`container_fs_usage_bytes{container="a",id="a-id",image="img:1",name="a-id",namespace="default",pod="web"} 1000 4000`,
		`container_network_transmit_bytes_total{interface="eth0",container="POD",id="s1",image="",name="s1",namespace="default",pod="web"} 2 6000`,
		"container_scrape_error 0",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, got)
		}
	}
}

func TestCadvisorWithoutRuntime(t *testing.T) {
	got := cadvisor(t, &fake{descriptors: []*runtimeapi.MetricDescriptor{}, err: status.Error(codes.Unavailable, "gone")})
	if !strings.Contains(got, "container_scrape_error 1\n") || !strings.Contains(got, "machine_cpu_cores") {
		t.Errorf("got:\n%s", got)
	}
}
