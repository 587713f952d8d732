package criserver

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// Lengths of messages have a byte for each 7 bits.
func TestWireLengths(t *testing.T) {
	for _, size := range []int{0, 1, 100, 127, 128, 129, 1 << 14, 1<<14 + 1, 1 << 21} {
		long := strings.Repeat("x", size)
		c := &pod.Container{Config: pod.ContainerConfig{
			Metadata: pod.ContainerMetadata{Name: "c", Attempt: math.MaxUint32},
			Labels:   map[string]string{"": long, "key": "", "other" + long: long},
		}}
		want := &cri.ContainerStats{Attributes: &cri.ContainerAttributes{
			Metadata: &cri.ContainerMetadata{Name: "c", Attempt: math.MaxUint32}, Labels: c.Config.Labels,
		}}
		got, err := sent(encodeContainerStats(c, &pod.ContainerUsage{}), nil)
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("labels of %d bytes: %v", size, err)
		}
	}
}

func TestWireNumbers(t *testing.T) {
	for _, n := range []uint64{0, 1, 127, 128, math.MaxInt64, math.MaxUint64} {
		var w wire
		w.value(2, &n)
		w.value(3, nil)
		got, err := sent(attach(&cri.CpuUsage{}, w), nil)
		if want := (&cri.CpuUsage{UsageCoreNanoSeconds: number(n)}); err != nil || !proto.Equal(got, want) {
			t.Errorf("%d: got %v %v", n, got, err)
		}
	}
	for _, f := range []float64{0, 0.5, 100, math.MaxFloat64} {
		var w wire
		w.real(2, f)
		got, err := sent(attach(&cri.PsiData{}, w), nil)
		if err != nil || got.Avg10 != f {
			t.Errorf("%v: got %v %v", f, got, err)
		}
	}
}
