package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/shutdown"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/survey"
)

// kept are pods of an agent that ends them at once.
type kept struct {
	some
	ended []string
	err   error // of measuring
}

func (k *kept) Evict(uid types.UID, grace int64, why agent.Refusal) bool {
	i := slices.IndexFunc(k.some, func(p *corev1.Pod) bool { return p.UID == uid })
	if i >= 0 {
		k.ended = append(k.ended, fmt.Sprintf("%s in %ds: %s, disrupts %v, again %v", k.some[i].Name, grace, why.Reason, why.Disrupts != "", why.Again))
	}
	return i >= 0
}

func (k *kept) Resume() { k.ended = append(k.ended, "all resume") }

func (*kept) Await(context.Context, types.UID) error { return nil }

func (k *kept) Volumes(_ context.Context, ask survey.Ask) map[types.UID]survey.Pod {
	out := map[types.UID]survey.Pod{}
	for _, p := range k.some {
		all := []volume.Usage{{Volume: "scratch", Local: true, Bytes: 7, Inodes: 2}, {Volume: "claim", Claim: "c", Bytes: 9}, {Local: true, Bytes: 5, Inodes: 3}}
		all = slices.DeleteFunc(all, func(u volume.Usage) bool { return !ask.Only(p.UID, u) })
		if len(all) > 0 {
			out[p.UID] = survey.Pod{Volumes: all, Err: k.err}
		}
	}
	return out
}

// told keeps what a node tells.
func told(k *Keeper) *[]string {
	out := &[]string{}
	k.cfg.Tell = Tell{
		Evicted: func(p *corev1.Pod, message string, annotations map[string]string) {
			*out = append(*out, fmt.Sprintf("%s %v: %s", p.Name, annotations, message))
		},
		Node:    func(kind, reason, message string) { *out = append(*out, "node "+kind+" "+reason+": "+message) },
		Changed: func() { *out = append(*out, "changed") },
	}
	return out
}

// TestEvict ends a pod for good, and tells of it.
func TestEvict(t *testing.T) {
	k := keeper(true)
	said := told(k)
	pods := &kept{some: some{burstable(1, "1")}}
	k.pods = pods
	e := evictor{k}
	if err := e.Evict(t.Context(), eviction.Eviction{Pod: pods.some[0], Signal: eviction.MemoryAvailable, Message: "low", Grace: 3 * time.Second, Annotations: map[string]string{"starved_resource": "memory"}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Evict(t.Context(), eviction.Eviction{Pod: burstable(7, "1")}); err == nil {
		t.Error("a pod that is not there was evicted")
	}
	e.SetConditions([]corev1.NodeConditionType{corev1.NodeMemoryPressure})
	e.Event("EvictionThresholdMet", "Attempting to reclaim memory")
	if want := []string{"p1 in 3s: Evicted, disrupts true, again false"}; !slices.Equal(pods.ended, want) {
		t.Errorf("%q, want %q", pods.ended, want)
	}
	if want := []string{"p1 map[starved_resource:memory]: low", "changed", "node Warning EvictionThresholdMet: Attempting to reclaim memory"}; !slices.Equal(*said, want) {
		t.Errorf("%q, want %q", *said, want)
	}
	if !slices.Equal(k.Pressure(), []corev1.NodeConditionType{corev1.NodeMemoryPressure}) {
		t.Errorf("%v", k.Pressure())
	}
	var counted strings.Builder
	if err := k.Metrics(&counted); err != nil || !strings.Contains(counted.String(), `kubelet_evictions{eviction_signal="memory.available"} 1`) {
		t.Errorf("%v, %s", err, &counted)
	}
	if err := e.RemoveContainers(t.Context()); err != nil { // there is nobody who could
		t.Error(err)
	}
	if err := e.RemoveImages(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHalfMeasured takes what could be measured of volumes, of the pods that matter alone.
func TestHalfMeasured(t *testing.T) {
	k := keeper(false)
	var log strings.Builder
	k.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	k.pods = &kept{some: some{burstable(1, "1"), burstable(2, "1"), burstable(3, "1")}, err: errors.New("too many files")}
	pods := (evictor{k}).weigh(t.Context(), []*corev1.Pod{burstable(1, "1"), burstable(2, "1")}, nil)
	want := map[string]eviction.Usage{"scratch": {Bytes: 7, Inodes: 2}}
	for _, p := range pods {
		if !maps.Equal(p.Volumes, want) || p.Files != (eviction.Usage{Bytes: 5, Inodes: 3}) {
			t.Errorf("%s: %+v, files %+v", p.Pod.Name, p.Volumes, p.Files)
		}
	}
	if len(pods) != 2 || strings.Count(log.String(), "too many files") != 2 {
		t.Errorf("%d pods, log\n%s", len(pods), &log)
	}
}

// diskless is a runtime that does not say which disks it has.
type diskless struct{ runtimeapi.ImageServiceClient }

func (diskless) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return nil, errors.New("not implemented")
}

// TestDisksUnknown tells that the runtime's disks are not watched, and goes by the node's.
func TestDisksUnknown(t *testing.T) {
	k := keeper(false)
	said := told(k)
	k.cfg.Folder, k.cfg.Log, k.cfg.Images = t.TempDir(), slog.New(slog.DiscardHandler), diskless{}
	if k.tellBlind(); len(*said) != 0 {
		t.Errorf("told %q before anything is known", *said)
	}
	if images, layout := k.layout(t.Context()); images != k.cfg.Folder || layout != eviction.OneDisk {
		t.Errorf("images are at %s, layout %v", images, layout)
	}
	k.tellBlind()
	if len(*said) != 1 || !strings.HasPrefix((*said)[0], "node Warning RuntimeDisksUnknown: ") || !strings.Contains((*said)[0], "not implemented") {
		t.Errorf("told %q", *said)
	}
}

// TestMeasured takes what a summary says.
func TestMeasured(t *testing.T) {
	p := eviction.Pod{Pod: burstable(1, "1")}
	fs := func(bytes, inodes uint64) *statsv1.FsStats {
		return &statsv1.FsStats{UsedBytes: &bytes, InodesUsed: &inodes}
	}
	memory := func(n uint64) *statsv1.MemoryStats { return &statsv1.MemoryStats{WorkingSetBytes: &n} }
	measured(&p, statsv1.PodStats{
		Memory: memory(5), ProcessStats: &statsv1.ProcessStats{ProcessCount: new(uint64(3))},
		Containers: []statsv1.ContainerStats{{Name: "main", Memory: memory(4), Rootfs: fs(1, 2), Logs: fs(3, 4)}, {Name: "bare"}},
	})
	want := []eviction.Container{{Name: "main", Memory: 4, Layer: eviction.Usage{Bytes: 1, Inodes: 2}, Logs: eviction.Usage{Bytes: 3, Inodes: 4}}, {Name: "bare"}}
	if !p.Measured || p.Memory != 5 || p.Pids != 3 || !slices.Equal(p.Containers, want) {
		t.Errorf("%+v", p)
	}
}

// TestNothingIsMeasured unless the node runs short, or a pod has limits for disk.
func TestNothingIsMeasured(t *testing.T) {
	limited := burstable(1, "1")
	limited.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
	sized := burstable(2, "1")
	sized.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Mi"))}}}}
	for p, want := range map[*corev1.Pod]bool{limited: true, sized: true, burstable(3, "1"): false} {
		if got := limitsDisk(p); got != want {
			t.Errorf("pod %s: %v, want %v", p.Name, got, want)
		}
	}
	k := keeper(false)
	k.pods = &kept{some: some{burstable(3, "1")}} // and no collector that could measure
	if got, err := (evictor{k}).Pods(t.Context(), false); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestShutdown has pods end with the node: for good in a cluster, unless they are static,
// and until the next boot on one machine. Meanwhile the node is not ready.
func TestShutdown(t *testing.T) {
	for _, tt := range []struct {
		manifests, static bool
		want              string
	}{
		{false, false, "p1 in 5s: Terminated, disrupts true, again false"},
		{false, true, "p1 in 5s: Terminated, disrupts true, again true"},
		{true, true, "p1 in 5s: Terminated, disrupts true, again true"},
	} {
		k, pod := keeper(tt.manifests), burstable(1, "1")
		if tt.static {
			pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}
		said := told(k)
		pods := &kept{some: some{pod}}
		k.pods = pods
		d := downer{k}
		d.ShuttingDown(true)
		if got := k.NotReady(); !slices.Equal(got, []string{"node is shutting down"}) {
			t.Errorf("%q", got)
		}
		if err := d.End(t.Context(), shutdown.Ending{Pod: d.Running()[0], Grace: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(pods.ended, []string{tt.want}) || len(*said) != 2 {
			t.Errorf("%q, want %q; told %q", pods.ended, tt.want, *said)
		}
		d.ShuttingDown(false)
		if got := k.NotReady(); len(got) > 0 {
			t.Errorf("%q", got)
		}
		if !slices.Equal(pods.ended, []string{tt.want, "all resume"}) {
			t.Errorf("%q: they do not run again when it is called off", pods.ended)
		}
	}
}
