package eviction

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

func amount(n int64) Value { return Value{Amount: *resource.NewQuantity(n, resource.BinarySI)} }

// step is a moment: what is left of 1000, or -1 for what could not be observed.
type step struct {
	at           int // s
	memory, pids int64
	want         string // conditions and what is due
}

func TestMachine(t *testing.T) {
	hard := Threshold{Signal: MemoryAvailable, Value: amount(100), Reclaim: amount(50)}
	soft := Threshold{Signal: MemoryAvailable, Value: amount(300), Grace: 30 * time.Second}
	pids := Threshold{Signal: PIDAvailable, Value: Value{Share: 0.1}}
	for _, tt := range []struct {
		name  string
		list  []Threshold
		steps []step
	}{
		{"enough", []Threshold{hard, pids}, []step{{0, 100, 100, "[] []"}}},
		{"a share", []Threshold{pids}, []step{{0, 1000, 99, "[PIDPressure] [pid.available<10%]"}}},
		{
			"at once, and until the minimum is back", []Threshold{hard}, []step{
				{0, 99, 1000, "[MemoryPressure] [memory.available<100 and 50 more]"},
				{10, 149, 1000, "[MemoryPressure] [memory.available<100 and 50 more]"},
				{20, 150, 1000, "[MemoryPressure] []"},
				{30, 149, 1000, "[MemoryPressure] []"},
			},
		},
		{
			"after a grace", []Threshold{soft}, []step{
				{0, 299, 1000, "[MemoryPressure] []"},
				{29, 299, 1000, "[MemoryPressure] []"},
				{30, 299, 1000, "[MemoryPressure] [memory.available<300 after 30s]"},
			},
		},
		{
			"the grace begins again", []Threshold{soft}, []step{
				{0, 299, 1000, "[MemoryPressure] []"},
				{20, 300, 1000, "[MemoryPressure] []"},
				{25, 299, 1000, "[MemoryPressure] []"},
				{50, 299, 1000, "[MemoryPressure] []"},
				{55, 299, 1000, "[MemoryPressure] [memory.available<300 after 30s]"},
			},
		},
		{
			"a condition stays for a minute", []Threshold{hard}, []step{
				{0, 99, 1000, "[MemoryPressure] [memory.available<100 and 50 more]"},
				{10, 1000, 1000, "[MemoryPressure] []"},
				{59, 1000, 1000, "[MemoryPressure] []"},
				{60, 1000, 1000, "[] []"},
			},
		},
		{
			"what is not observed changes nothing", []Threshold{hard, pids}, []step{
				{0, 99, -1, "[MemoryPressure] [memory.available<100 and 50 more]"},
				{10, -1, -1, "[MemoryPressure] []"},
				{100, -1, -1, "[MemoryPressure] []"},
				{110, 99, -1, "[MemoryPressure] [memory.available<100 and 50 more]"},
			},
		},
		{
			"the hard one of two first", []Threshold{hard, soft, pids}, []step{
				{0, 200, 1000, "[MemoryPressure] []"},
				{30, 99, 1, "[MemoryPressure PIDPressure] [memory.available<100 and 50 more memory.available<300 after 30s pid.available<10%]"},
			},
		},
	} {
		m := NewMachine(tt.list, time.Minute)
		for _, s := range tt.steps {
			seen := Observations{}
			if s.memory >= 0 {
				seen[MemoryAvailable] = Observation{s.memory, 1000}
			}
			if s.pids >= 0 {
				seen[PIDAvailable] = Observation{s.pids, 1000}
			}
			v := m.Step(time.Unix(int64(1000+s.at), 0), seen)
			due := []string{}
			for _, d := range v.Due {
				due = append(due, short(d))
			}
			if got := fmt.Sprint(v.Conditions, " ", due); got != s.want {
				t.Errorf("%s at %d s: %s, want %s", tt.name, s.at, got, s.want)
			}
		}
	}
}

func TestNoTransition(t *testing.T) {
	m := NewMachine([]Threshold{{Signal: PIDAvailable, Value: amount(10)}}, 0)
	for i, tt := range []struct {
		left int64
		want int
	}{{9, 1}, {9, 1}, {10, 0}} {
		v := m.Step(time.Unix(int64(i), 0), Observations{PIDAvailable: {tt.left, 100}})
		if len(v.Conditions) != tt.want {
			t.Errorf("step %d: %v", i, v.Conditions)
		}
	}
}
