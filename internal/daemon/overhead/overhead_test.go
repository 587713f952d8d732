package overhead

import (
	"testing"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/pod"
)

func TestPercentile(t *testing.T) {
	var hundred []pod.Cost
	for i := range 100 {
		hundred = append(hundred, pod.Cost{Memory: int64(100 - i), CPU: float64(i + 1)})
	}
	for name, test := range map[string]struct {
		pods   []pod.Cost
		p      float64
		memory int64
		cpu    float64
	}{
		"none":             {nil, 50, 0, 0},
		"one":              {[]pod.Cost{{Memory: 7, CPU: 2}}, 99, 7, 2},
		"the lower of two": {[]pod.Cost{{Memory: 7, CPU: 2}, {Memory: 5, CPU: 3}}, 50, 5, 2},
		"99th of two":      {[]pod.Cost{{Memory: 7, CPU: 2}, {Memory: 5, CPU: 3}}, 99, 7, 3},
		"median of 100":    {hundred, 50, 50, 50},
		"99th of 100":      {hundred, 99, 99, 99},
	} {
		if memory, cpu := percentile(test.pods, test.p); memory != test.memory || cpu != test.cpu {
			t.Errorf("%s: %d and %v, want %d and %v", name, memory, cpu, test.memory, test.cpu)
		}
	}
}

// What was measured is true of that program only.
func TestOverheadsOfAnotherProgram(t *testing.T) {
	var m Meter
	old := pod.HandlerInfo{Name: "a", Path: "/bin/runc", Version: "1"}
	m.keep(&old, adminv1.Overhead{Name: "a", MemoryP99: 5})
	if got := m.Of(&old); got == nil || got.MemoryP99 != 5 {
		t.Errorf("got %+v", got)
	}
	for _, i := range []pod.HandlerInfo{{Name: "a", Path: "/bin/runc", Version: "2"}, {Name: "a", Path: "/bin/crun", Version: "1"}, {Name: "b", Path: "/bin/runc", Version: "1"}} {
		if got := m.Of(&i); got != nil {
			t.Errorf("%+v is told of %+v", got, i)
		}
	}
}
