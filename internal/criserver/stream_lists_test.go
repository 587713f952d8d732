package criserver

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// drainStream reads a stream to its end: how many items, and in how many parts.
func drainStream[T any](t *testing.T, stream grpc.ServerStreamingClient[T], err error, items func(*T) int) (n, parts int) {
	t.Helper()
	for err == nil {
		var part *T
		if part, err = stream.Recv(); err == nil {
			if items(part) == 0 {
				t.Error("a part is empty")
			}
			n += items(part)
			parts++
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return n, parts
}

func TestStreamsOfLists(t *testing.T) {
	f := newFake()
	conn := serve(t, f.server(t, nil))
	client, images := cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	want := func(name string, n, parts, items int) {
		t.Helper()
		if n != items || parts > n || (parts == 0) != (items == 0) {
			t.Errorf("%s: %d items in %d parts, want %d", name, n, parts, items)
		}
	}
	for _, none := range []bool{false, true} {
		only, k := "", 1
		if none {
			only, k = "zzz", 0
		}
		ctrs, err := client.StreamContainers(t.Context(), &cri.StreamContainersRequest{Filter: &cri.ContainerFilter{Id: only}})
		n, parts := drainStream(t, ctrs, err, func(r *cri.StreamContainersResponse) int { return len(r.Containers) })
		want("containers", n, parts, 4*k)
		pods, err := client.StreamPodSandboxes(t.Context(), &cri.StreamPodSandboxesRequest{Filter: &cri.PodSandboxFilter{Id: only}})
		n, parts = drainStream(t, pods, err, func(r *cri.StreamPodSandboxesResponse) int { return len(r.PodSandboxes) })
		want("pods", n, parts, 2*k)
		stats, err := client.StreamContainerStats(t.Context(), &cri.StreamContainerStatsRequest{Filter: &cri.ContainerStatsFilter{Id: only}})
		n, parts = drainStream(t, stats, err, func(r *cri.StreamContainerStatsResponse) int { return len(r.ContainerStats) })
		want("stats of containers", n, parts, 2*k)
		podStats, err := client.StreamPodSandboxStats(t.Context(), &cri.StreamPodSandboxStatsRequest{Filter: &cri.PodSandboxStatsFilter{Id: only}})
		n, parts = drainStream(t, podStats, err, func(r *cri.StreamPodSandboxStatsResponse) int { return len(r.PodSandboxStats) })
		want("stats of pods", n, parts, k)
		f.ended = map[string]error{}
		if none {
			f.ended[string(f.pods[0].ID)] = errdefs.ErrNotFound
		}
		metrics, err := client.StreamPodSandboxMetrics(t.Context(), &cri.StreamPodSandboxMetricsRequest{})
		n, parts = drainStream(t, metrics, err, func(r *cri.StreamPodSandboxMetricsResponse) int { return len(r.PodSandboxMetrics) })
		want("metrics", n, parts, k)
		imgs, err := images.StreamImages(t.Context(), &cri.StreamImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: only}}})
		n, parts = drainStream(t, imgs, err, func(r *cri.StreamImagesResponse) int { return len(r.Images) })
		want("images", n, parts, k)
	}
}

// More than one message may hold.
func TestALongListComesInParts(t *testing.T) {
	f := newFake()
	f.pods = nil
	for i := range 100 {
		f.pods = append(f.pods, &pod.Record{
			ID: pod.ID(fmt.Sprintf("%064d", i)), State: pod.Running,
			Config: pod.Config{Annotations: map[string]string{"large": strings.Repeat("x", 256<<10)}},
		})
	}
	client := cri.NewRuntimeServiceClient(serve(t, f.server(t, nil)))
	if _, err := client.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{}); err == nil {
		t.Error("the list fits into a message, so that this test shows nothing")
	}
	stream, err := client.StreamPodSandboxes(t.Context(), &cri.StreamPodSandboxesRequest{})
	var ids []string
	n, parts := drainStream(t, stream, err, func(r *cri.StreamPodSandboxesResponse) int {
		for _, p := range r.PodSandboxes {
			ids = append(ids, p.Id)
		}
		return len(r.PodSandboxes)
	})
	if slices.Sort(ids); n != 100 || parts < 25 || len(slices.Compact(ids)) != 100 {
		t.Errorf("%d items in %d parts", n, parts)
	}
}

func TestParts(t *testing.T) {
	item := func(n int) *cri.Image { return &cri.Image{Id: strings.Repeat("x", n)} }
	for name, tt := range map[string]struct {
		sizes []int
		want  []int
	}{
		"nothing":         {nil, nil},
		"one":             {[]int{1}, []int{1}},
		"small":           {[]int{1, 2, 3}, []int{3}},
		"too large a one": {[]int{1, 2 * maxPart, 1}, []int{1, 1, 1}},
		"large":           {[]int{maxPart / 2, maxPart / 3, maxPart / 3, 1}, []int{2, 2}},
	} {
		var list []*cri.Image
		for _, n := range tt.sizes {
			list = append(list, item(n))
		}
		var got []int
		if err := inParts(list, func(p []*cri.Image) error { got = append(got, len(p)); return nil }); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v %v, want %v", name, got, err, tt.want)
		}
	}
	boom := errors.New("boom")
	for _, n := range []int{1, maxPart} {
		if err := inParts([]*cri.Image{item(n), item(1)}, func([]*cri.Image) error { return boom }); !errors.Is(err, boom) {
			t.Error(err)
		}
	}
}
