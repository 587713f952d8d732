package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Observation is what there is of something, and what of it is left.
type Observation struct {
	Available, Capacity int64
}

// Observations are what could be observed. What is missing passes no threshold and
// ends none.
type Observations map[Signal]Observation

// Machine says which thresholds are passed, and for how long. It has no clock.
type Machine struct {
	thresholds []Threshold
	transition time.Duration
	since      map[int]time.Time // when a threshold was passed, by its index
	last       map[corev1.NodeConditionType]time.Time
}

// NewMachine makes one. A condition stays for the transition period after the last
// observation that gave a reason for it.
func NewMachine(thresholds []Threshold, transition time.Duration) *Machine {
	return &Machine{
		thresholds: thresholds, transition: transition,
		since: map[int]time.Time{}, last: map[corev1.NodeConditionType]time.Time{},
	}
}

// Verdict is what follows from what was observed.
type Verdict struct {
	// Conditions that the node has, in a fixed order.
	Conditions []corev1.NodeConditionType
	// Due are the thresholds that something has to be done about now, the most
	// urgent one first.
	Due []Threshold
}

// pressures are in the order in which they are told.
var pressures = []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}

// passed says whether less is available than a threshold asks for. One that was
// passed before is until its minimum has been given back, too.
func (t Threshold) passed(o Observation, before bool) bool {
	wanted := t.Value.Of(o.Capacity)
	if before {
		wanted += t.Reclaim.Of(o.Capacity)
	}
	return o.Available < wanted
}

// Step takes what was observed at a time.
func (m *Machine) Step(now time.Time, seen Observations) Verdict {
	var out Verdict
	for i, t := range m.thresholds {
		began, before := m.since[i]
		o, known := seen[t.Signal]
		switch {
		case known && t.passed(o, before) && !before:
			m.since[i], began, before = now, now, true
		case known && !t.passed(o, before):
			delete(m.since, i)
			before = false
		}
		if !before {
			continue
		}
		m.last[condition[t.Signal]] = now
		if now.Sub(began) >= t.Grace && known {
			out.Due = append(out.Due, t)
		}
	}
	for _, c := range pressures {
		if at, ok := m.last[c]; ok && (at.Equal(now) || now.Sub(at) < m.transition) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

// Resolved says whether what was observed gives no more reason for a threshold
// that was passed.
func Resolved(t Threshold, seen Observations) bool {
	o, known := seen[t.Signal]
	return known && !t.passed(o, true)
}
