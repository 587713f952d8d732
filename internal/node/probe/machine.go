package probe

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is what a probe is about.
type Kind string

// The kinds.
const (
	Startup   Kind = "startup"
	Liveness  Kind = "liveness"
	Readiness Kind = "readiness"
)

// Of is the probe of a kind that a container has, or nil.
func Of(ct *corev1.Container, k Kind) *corev1.Probe {
	switch k {
	case Startup:
		return ct.StartupProbe
	case Liveness:
		return ct.LivenessProbe
	}
	return ct.ReadinessProbe
}

// Any says whether a container has probes.
func Any(ct *corev1.Container) bool {
	return ct.StartupProbe != nil || ct.LivenessProbe != nil || ct.ReadinessProbe != nil
}

// Settings are the numbers of a probe. What is not set has the default of the
// API.
type Settings struct {
	Delay, Period, Timeout time.Duration
	Successes, Failures    int // in a row, until the answer counts
}

// SettingsOf reads them.
func SettingsOf(p *corev1.Probe) Settings {
	return Settings{
		Delay:     time.Duration(p.InitialDelaySeconds) * time.Second,
		Period:    time.Duration(cmp.Or(p.PeriodSeconds, 10)) * time.Second,
		Timeout:   time.Duration(cmp.Or(p.TimeoutSeconds, 1)) * time.Second,
		Successes: int(cmp.Or(p.SuccessThreshold, 1)),
		Failures:  int(cmp.Or(p.FailureThreshold, 3)),
	}
}

// Outcome is how one try ended.
type Outcome int

// The outcomes. Unknown says that nobody could ask: it counts for nothing, and
// does not interrupt a row either.
const (
	Unknown Outcome = iota
	Success
	Failure
)

// Result is an outcome, and what there is to say about it on one line. A success
// with a message is a warning.
type Result struct {
	Outcome Outcome
	Message string
}

// Status is what the probes of a container come to.
type Status struct {
	// Up says that the startup probe has passed, or that there is none.
	Up bool
	// Ready says that the container is up and its readiness probe passes, or that
	// it has none.
	Ready bool
	// Failed is the probe for which the container is to be ended; empty for none.
	Failed Kind
	// Message is why the container is to be ended, or is not up, or is not ready;
	// empty as long as no try has told.
	Message string
}

// Machine is the probes of one attempt at a container. It does no I/O and reads
// no clock. A new attempt has a new one.
type Machine struct {
	tracks  []*track
	leaving bool
}

// track is one probe.
type track struct {
	Kind
	Settings
	due     time.Time // of the next try
	trying  bool
	held    bool    // nothing more is to be found out
	verdict Outcome // the last answer that counted
	last    Outcome // of the last try
	row     int     // how often in a row
	message string  // of the last try that did not succeed
}

// NewMachine is that of a container that began to run then.
func NewMachine(ct *corev1.Container, began time.Time) *Machine {
	m := &Machine{}
	for _, k := range []Kind{Startup, Liveness, Readiness} {
		if p := Of(ct, k); p != nil {
			s := SettingsOf(p)
			m.tracks = append(m.tracks, &track{Kind: k, Settings: s, due: began.Add(s.Delay)})
		}
	}
	return m
}

// Assume says what the probes had come to when somebody else watched. A container that was
// up is not asked for that any more, and one that was ready is so until it fails.
func (m *Machine) Assume(up, ready bool) {
	if t := m.of(Startup); t != nil && up {
		t.verdict, t.held = Success, true
	}
	if t := m.of(Readiness); t != nil && ready {
		t.verdict = Success
	}
}

func (m *Machine) of(k Kind) *track {
	for _, t := range m.tracks {
		if t.Kind == k {
			return t
		}
	}
	return nil
}

// Begin takes the probes whose tries begin now. Done has to follow for each. If
// nothing happens before, the next ones begin at next; zero is never.
func (m *Machine) Begin(now time.Time) (kinds []Kind, next time.Time) {
	up := m.up()
	for _, t := range m.tracks {
		if t.trying || t.held || m.leaving && t.Kind != Readiness || up != (t.Kind != Startup) {
			continue
		}
		if t.due.After(now) {
			if next.IsZero() || t.due.Before(next) {
				next = t.due
			}
			continue
		}
		t.trying, t.due = true, now.Add(t.Period)
		kinds = append(kinds, t.Kind)
	}
	return kinds, next
}

// Done takes the result of a try.
func (m *Machine) Done(k Kind, r Result) {
	t := m.of(k)
	t.trying = false
	if m.leaving && k != Readiness {
		return
	}
	if r.Outcome != Success {
		t.message = r.Message
	}
	if r.Outcome == Unknown {
		return
	}
	if t.last != r.Outcome {
		t.last, t.row = r.Outcome, 0
	}
	t.row++
	if r.Outcome == Success && t.row < t.Successes || r.Outcome == Failure && t.row < t.Failures {
		return
	}
	t.verdict = r.Outcome
	// A container that is to be ended is not asked any more, nor whether it has
	// started once it has.
	t.held = t.Kind == Startup || t.Kind == Liveness && r.Outcome == Failure
}

// Leave says that the container is being ended. Only whether it is still ready is asked
// from now on: others send it work as long as it is.
func (m *Machine) Leave() { m.leaving = true }

func (m *Machine) up() bool {
	t := m.of(Startup)
	return t == nil || t.verdict == Success
}

// Status is what the results come to so far.
func (m *Machine) Status() Status {
	s := Status{Up: m.up()}
	for _, k := range []Kind{Startup, Liveness} {
		if t := m.of(k); t != nil && t.verdict == Failure {
			s.Failed = k
			s.Message = fmt.Sprintf("its %s probe failed%s: %s", k, times(t.Failures), t.message)
			return s
		}
	}
	t := m.of(Readiness)
	s.Ready = s.Up && (t == nil || t.verdict == Success)
	waits := t
	if !s.Up {
		waits = m.of(Startup)
	}
	if !s.Ready && waits != nil && waits.message != "" {
		s.Message = fmt.Sprintf("its %s probe fails: %s", waits.Kind, waits.message)
	}
	return s
}

func times(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" %d times in a row", n)
}
