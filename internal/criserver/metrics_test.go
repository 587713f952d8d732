package criserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// A kubelet joins the keys of a descriptor with the values of a metric.
func TestMetrics(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	d, err := s.ListMetricDescriptors(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &cri.ListMetricDescriptorsResponse{Descriptors: []*cri.MetricDescriptor{
		{Name: "container_last_seen", Help: "When.", LabelKeys: []string{"id", "name", "image", "container", "pod", "namespace"}},
		{Name: "container_reads_total", Help: "Reads.", LabelKeys: []string{"id", "name", "image", "container", "pod", "namespace", "device"}},
	}}
	if !proto.Equal(d, want) {
		t.Errorf("%v", d)
	}
	r, err := sent(s.ListPodSandboxMetrics(t.Context(), nil))
	if err != nil || len(r.PodMetrics) != 1 || len(r.PodMetrics[0].ContainerMetrics) != 2 {
		t.Fatalf("%v %v", r, err)
	}
	of := func(id, name, image, container string) []*cri.Metric {
		whose := []string{id, name, image, container, "web", "default"}
		return []*cri.Metric{
			{Name: "container_last_seen", MetricType: cri.MetricType_GAUGE, LabelValues: whose, Value: &cri.UInt64Value{Value: 5}},
			{Name: "container_reads_total", LabelValues: slices.Concat(whose, []string{"sda"}), Value: &cri.UInt64Value{Value: 6}},
			{Name: "container_reads_total", LabelValues: slices.Concat(whose, []string{"sdb"}), Value: &cri.UInt64Value{Value: 7}},
		}
	}
	wantPod := &cri.PodSandboxMetrics{
		PodSandboxId: strings.Repeat("a", 64), Metrics: of("/cgroup/web", strings.Repeat("a", 64), "", "POD"),
		ContainerMetrics: []*cri.ContainerMetrics{
			{ContainerId: strings.Repeat("2", 64), Metrics: of("/cgroup/cRunning", strings.Repeat("2", 64), "nginx", "cRunning")},
			{ContainerId: strings.Repeat("4", 64), Metrics: of("/cgroup/cUnknown", strings.Repeat("4", 64), "nginx", "cUnknown")},
		},
	}
	if !proto.Equal(r.PodMetrics[0], wantPod) {
		t.Errorf("got %v\nwant %v", r.PodMetrics[0], wantPod)
	}
}

// Zero says that a metric is of this moment.
func TestMetricsSayTheirTime(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	for _, at := range []time.Time{{}, time.Unix(1_700_000_000, 5)} {
		f.before = at
		r, err := sent(s.ListPodSandboxMetrics(t.Context(), nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range append(r.PodMetrics[0].Metrics, r.PodMetrics[0].ContainerMetrics[0].Metrics...) {
			if m.Timestamp != nanoseconds(at) {
				t.Errorf("%s is of %d, want %v", m.Name, m.Timestamp, at)
			}
		}
	}
}

func TestMetricsOfWhatEnds(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	f.ended = map[string]error{strings.Repeat("2", 64): errdefs.ErrNotFound}
	if r, err := sent(s.ListPodSandboxMetrics(t.Context(), nil)); err != nil || len(r.PodMetrics[0].ContainerMetrics) != 1 {
		t.Errorf("a container has ended: %v %v", r, err)
	}
	f.ended = map[string]error{strings.Repeat("a", 64): errors.New("broken")}
	if r, err := sent(s.ListPodSandboxMetrics(t.Context(), nil)); err != nil || len(r.PodMetrics) != 0 {
		t.Errorf("a pod cannot be measured: %v %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sent(s.ListPodSandboxMetrics(ctx, nil)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
