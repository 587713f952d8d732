package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var zero = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// probeOf makes a probe of numbers: delay, period, successes and failures.
func probeOf(delay, period, successes, failures int32) *corev1.Probe {
	return &corev1.Probe{InitialDelaySeconds: delay, PeriodSeconds: period, SuccessThreshold: successes, FailureThreshold: failures}
}

// script is what the tries of a probe come to: + is success, - failure, ? that
// nobody could ask. The last one goes on. A digit before one says how many seconds
// that try takes.
type script string

func (s *script) next() (time.Duration, Outcome) {
	took := time.Duration(0)
	text := string(*s)
	if text[0] >= '0' && text[0] <= '9' {
		took = time.Duration(text[0]-'0') * time.Second
		text = text[1:]
	}
	o := map[byte]Outcome{'+': Success, '-': Failure, '?': Unknown}[text[0]]
	if len(text) > 1 {
		*s = script(text[1:])
	}
	return took, o
}

// play runs a machine against scripts, for some seconds by a clock of its own, and
// tells when which try began, and each change of the status.
func play(ct *corev1.Container, scripts map[Kind]*script, seconds int) string {
	m := NewMachine(ct, zero)
	var told []string
	type under struct {
		Kind
		Outcome
		end time.Time
	}
	var tries []under
	before := m.Status()
	before.Message = ""
	for now := zero; !now.After(zero.Add(time.Duration(seconds) * time.Second)); now = now.Add(time.Second) {
		for again := true; again; {
			again = false
			for i, t := range tries {
				if !t.end.After(now) {
					m.Done(t.Kind, Result{t.Outcome, "why"})
					tries = slices.Delete(tries, i, i+1)
					again = true
					break
				}
			}
			kinds, _ := m.Begin(now)
			for _, k := range kinds {
				told = append(told, fmt.Sprintf("%d%c", now.Sub(zero)/time.Second, k[0]))
				took, o := scripts[k].next()
				tries = append(tries, under{k, o, now.Add(took)})
				again = true
			}
		}
		after := m.Status()
		after.Message = ""
		if after != before {
			word := "down"
			switch {
			case after.Failed != "":
				word = "end:" + string(after.Failed)
			case after.Ready:
				word = "ready"
			case after.Up:
				word = "up"
			}
			told = append(told, fmt.Sprintf("%d=%s", now.Sub(zero)/time.Second, word))
			before = after
		}
	}
	return strings.Join(told, " ")
}

func TestMachine(t *testing.T) {
	for _, tt := range []struct {
		name                         string
		startup, liveness, readiness *corev1.Probe
		s, l, r                      script
		seconds                      int
		want                         string
	}{
		{name: "nothing to probe", seconds: 5},
		{name: "readiness, at once and then in each period", readiness: probeOf(0, 2, 1, 1), r: "+", seconds: 4, want: "0r 0=ready 2r 4r"},
		{name: "readiness, after a delay", readiness: probeOf(3, 10, 1, 1), r: "+", seconds: 5, want: "3r 3=ready"},
		{name: "readiness, the default period", readiness: &corev1.Probe{}, r: "+", seconds: 20, want: "0r 0=ready 10r 20r"},
		{name: "readiness, lost after three failures in a row", readiness: probeOf(0, 1, 1, 3), r: "+--+---", seconds: 7, want: "0r 0=ready 1r 2r 3r 4r 5r 6r 6=up 7r"},
		{name: "readiness, back after two successes in a row", readiness: probeOf(0, 1, 2, 1), r: "+-+++", seconds: 5, want: "0r 1r 2r 3r 3=ready 4r 5r"},
		{name: "readiness, what nobody knows counts for nothing", readiness: probeOf(0, 1, 1, 2), r: "+-?-+", seconds: 4, want: "0r 0=ready 1r 2r 3r 3=up 4r 4=ready"},
		{name: "readiness, a slow try delays the next", readiness: probeOf(0, 1, 1, 1), r: "3+", seconds: 6, want: "0r 3r 3=ready 6r"},

		{name: "liveness, alive until it has failed", liveness: probeOf(0, 1, 1, 2), l: "+-+--", seconds: 9, want: "0l 1l 2l 3l 4l 4=end:liveness"},
		{name: "liveness, the first answers count", liveness: probeOf(2, 1, 1, 1), l: "-", seconds: 9, want: "2l 2=end:liveness"},
		{name: "liveness, nobody can ask", liveness: probeOf(0, 1, 1, 1), l: "?", seconds: 2, want: "0l 1l 2l"},
		{name: "liveness and readiness", liveness: probeOf(0, 2, 1, 2), readiness: probeOf(1, 2, 1, 1), l: "--", r: "+", seconds: 5, want: "0l 1r 1=ready 2l 2=end:liveness 3r 5r"},

		{name: "startup gates the others", startup: probeOf(1, 2, 1, 5), liveness: probeOf(0, 3, 1, 1), readiness: probeOf(0, 3, 1, 1), s: "--+", l: "+", r: "+", seconds: 8, want: "1s 3s 5s 5l 5r 5=ready 8l 8r"},
		{name: "startup, and the others have delays from the beginning", startup: probeOf(0, 1, 1, 5), liveness: probeOf(4, 9, 1, 1), s: "-+", l: "+", seconds: 6, want: "0s 1s 1=ready 4l"},
		{name: "startup, a readiness probe that fails", startup: probeOf(0, 1, 1, 5), readiness: probeOf(0, 2, 1, 1), s: "+", r: "-+", seconds: 2, want: "0s 0r 0=up 2r 2=ready"},
		{name: "startup, failed", startup: probeOf(0, 1, 1, 3), liveness: probeOf(0, 1, 1, 1), s: "--?-", l: "-", seconds: 9, want: "0s 1s 2s 3s 3=end:startup"},
		{name: "startup, never again once it has passed", startup: probeOf(0, 1, 1, 1), s: "+-", seconds: 5, want: "0s 0=ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ct := &corev1.Container{StartupProbe: tt.startup, LivenessProbe: tt.liveness, ReadinessProbe: tt.readiness}
			got := play(ct, map[Kind]*script{Startup: &tt.s, Liveness: &tt.l, Readiness: &tt.r}, tt.seconds)
			if got != tt.want {
				t.Errorf("\ngot  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestNext wants the time of the next try, so that nobody has to poll.
func TestNext(t *testing.T) {
	m := NewMachine(&corev1.Container{StartupProbe: probeOf(4, 1, 1, 1), LivenessProbe: probeOf(0, 7, 1, 1)}, zero)
	want := func(now, kinds, next int) {
		t.Helper()
		got, at := m.Begin(zero.Add(time.Duration(now) * time.Second))
		if len(got) != kinds || (next < 0) != at.IsZero() || next >= 0 && !at.Equal(zero.Add(time.Duration(next)*time.Second)) {
			t.Errorf("at %d: %v, next at %v; want %d, next at %d", now, got, at, kinds, next)
		}
	}
	want(0, 0, 4)
	want(4, 1, -1) // only its end brings more
	m.Done(Startup, Result{Outcome: Success})
	want(4, 1, -1)
	m.Done(Liveness, Result{Outcome: Success})
	want(5, 0, 11)
}

// TestLeave asks of a container that is being ended whether it is ready, and nothing
// else; nor does an answer count that comes too late.
func TestLeave(t *testing.T) {
	m := NewMachine(&corev1.Container{LivenessProbe: probeOf(0, 1, 1, 1), ReadinessProbe: probeOf(0, 1, 1, 1)}, zero)
	m.Begin(zero)
	m.Done(Readiness, Result{Outcome: Success})
	m.Leave()
	m.Done(Liveness, Result{Outcome: Failure})
	if s := m.Status(); s.Failed != "" || !s.Ready {
		t.Errorf("%+v", s)
	}
	kinds, next := m.Begin(zero.Add(time.Second))
	if !slices.Equal(kinds, []Kind{Readiness}) || !next.IsZero() {
		t.Errorf("%v, and next at %v", kinds, next)
	}
	m.Done(Readiness, Result{Outcome: Failure})
	if m.Status().Ready {
		t.Error("it is ready")
	}
}

func TestMessages(t *testing.T) {
	m := NewMachine(&corev1.Container{StartupProbe: probeOf(0, 1, 1, 2), LivenessProbe: probeOf(0, 1, 1, 1), ReadinessProbe: probeOf(0, 1, 1, 1)}, zero)
	step := func(k Kind, o Outcome, message, want string) {
		t.Helper()
		m.Begin(zero.Add(time.Hour))
		m.Done(k, Result{o, message})
		if got := m.Status().Message; got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
	step(Startup, Failure, "no file", "its startup probe fails: no file")
	step(Startup, Success, "", "")
	step(Liveness, Success, "", "")
	step(Readiness, Failure, "status 503", "its readiness probe fails: status 503")
	step(Readiness, Success, "", "")
	step(Readiness, Unknown, "nobody answers", "")
	step(Liveness, Failure, "status 500", "its liveness probe failed: status 500")
	m = NewMachine(&corev1.Container{LivenessProbe: probeOf(0, 1, 1, 2)}, zero)
	step(Liveness, Failure, "one", "")
	step(Liveness, Failure, "two", "its liveness probe failed 2 times in a row: two")
}

// TestAssume begins with what was found out before, and goes by the next answers.
func TestAssume(t *testing.T) {
	for _, tt := range []struct {
		up, ready           bool
		before, after, asks string
	}{
		{false, false, "up false, ready false", "up false, ready false", "[startup]"},
		{true, false, "up true, ready false", "up true, ready false", "[liveness readiness]"},
		{true, true, "up true, ready true", "up true, ready false", "[liveness readiness]"},
	} {
		m := NewMachine(&corev1.Container{StartupProbe: probeOf(0, 1, 1, 9), LivenessProbe: probeOf(0, 1, 1, 9), ReadinessProbe: probeOf(0, 1, 1, 1)}, zero)
		m.Assume(tt.up, tt.ready)
		said := func() string { return fmt.Sprintf("up %v, ready %v", m.Status().Up, m.Status().Ready) }
		if got := said(); got != tt.before {
			t.Errorf("%+v: %s before anybody has asked", tt, got)
		}
		kinds, _ := m.Begin(zero)
		for _, k := range kinds {
			m.Done(k, Result{Outcome: Failure})
		}
		if got := said(); got != tt.after || fmt.Sprint(kinds) != tt.asks {
			t.Errorf("%+v: %s, asked %v", tt, got, kinds)
		}
	}
}
