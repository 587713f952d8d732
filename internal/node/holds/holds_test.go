package holds

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/plan"
)

// TestPause grows while the same fails, up to a minute, and leaves alone what has a time.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Holds{}
		for _, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
			h.Put("x", &NotStarted{Reason: CreateError})
			if got := time.Until(h["x"].Until); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		at := time.Now().Add(time.Hour)
		h.Put("x", &NotStarted{Until: at})
		if !h["x"].Until.Equal(at) {
			t.Errorf("%s, want %s", h["x"].Until, at)
		}
	})
}

// TestApply leaves out what waits, and no more, and says when it may start.
func TestApply(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	soon, later := now.Add(time.Second), now.Add(time.Minute)
	box, x, y, stop := plan.Action{Verb: plan.RunSandbox}, plan.Action{Verb: plan.Start, Container: "x"}, plan.Action{Verb: plan.Start, Container: "y"}, plan.Action{Verb: plan.Stop, Container: "x"}
	for name, tt := range map[string]struct {
		holds   Holds
		again   time.Time
		actions []plan.Action
		want    []plan.Action
		wakes   time.Time
	}{
		"nothing":               {Holds{}, later, []plan.Action{box, x}, []plan.Action{box, x}, later},
		"a container":           {Holds{"x": {Until: soon}}, time.Time{}, []plan.Action{x, y}, []plan.Action{y}, soon},
		"one that may start":    {Holds{"x": {Until: now}}, time.Time{}, []plan.Action{x}, []plan.Action{x}, time.Time{}},
		"one that is to end":    {Holds{"x": {Until: soon}}, time.Time{}, []plan.Action{stop}, []plan.Action{stop}, time.Time{}},
		"the plan's time first": {Holds{"x": {Until: later}}, soon, []plan.Action{x}, nil, soon},
		"the first of two":      {Holds{"x": {Until: later}, "y": {Until: soon}}, time.Time{}, []plan.Action{x, y}, nil, soon},
		"the sandbox, and all":  {Holds{"": {Until: soon}}, time.Time{}, []plan.Action{stop, box, x}, []plan.Action{stop}, soon},
	} {
		got := tt.holds.Apply(plan.Plan{Actions: slices.Clone(tt.actions), Again: tt.again}, now)
		same := slices.EqualFunc(got.Actions, tt.want, func(a, b plan.Action) bool { return a.Verb == b.Verb && a.Container == b.Container })
		if !same || !got.Again.Equal(tt.wakes) {
			t.Errorf("%s: %+v, again %s", name, got.Actions, got.Again)
		}
	}
}

func TestWaiting(t *testing.T) {
	got := Holds{"": {Message: "no sandbox"}, "x": {Reason: RunError, Message: "no program"}}.Waiting()
	if want := map[string]corev1.ContainerStateWaiting{"x": {Reason: RunError, Message: "no program"}}; !maps.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
