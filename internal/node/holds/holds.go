// Package holds has what could not be started wait until that may succeed, and remembers
// why. What is started, and in which order, is for internal/node/plan.
package holds

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/plan"
)

// The reasons for which a container waits, beside those of images and plans. They are
// the kubelet's.
const (
	ConfigError = "CreateContainerConfigError"
	CreateError = "CreateContainerError"
	RunError    = "RunContainerError"
)

// What goes on failing waits longer each time, from first to last.
const (
	first = 500 * time.Millisecond
	last  = time.Minute
)

// NotStarted is why a container or a sandbox could not be started.
type NotStarted struct {
	Reason, Message string
	Until           time.Time // when that may have changed; zero for whoever holds it to say
	pause           time.Duration
}

// Error has both, for logs.
func (e *NotStarted) Error() string { return e.Reason + ": " + e.Message }

// Holds are what could not be started of a pod, by the names of containers; the name of
// the sandbox is empty.
type Holds map[string]*NotStarted

// Put has something wait. The pause grows while it goes on failing.
func (h Holds) Put(name string, why *NotStarted) {
	if before := h[name]; before != nil {
		why.pause = before.pause
	}
	if why.Until.IsZero() {
		why.pause = min(max(2*why.pause, first), last)
		why.Until = time.Now().Add(why.pause)
	}
	h[name] = why
}

// Apply leaves out of a plan what waits, and has it made anew when that may start.
func (h Holds) Apply(p plan.Plan, now time.Time) plan.Plan {
	waits := func(a plan.Action) bool {
		why := h[a.Container]
		if a.Verb != plan.Start && a.Verb != plan.RunSandbox || why == nil || !now.Before(why.Until) {
			return false
		}
		if p.Again.IsZero() || why.Until.Before(p.Again) {
			p.Again = why.Until
		}
		return true
	}
	for i, a := range p.Actions {
		if a.Verb == plan.RunSandbox && waits(a) {
			p.Actions = p.Actions[:i] // what follows is to be in it
			return p
		}
	}
	p.Actions = slices.DeleteFunc(p.Actions, waits)
	return p
}

// Waiting are the containers that wait, as their statuses say so.
func (h Holds) Waiting() map[string]corev1.ContainerStateWaiting {
	out := map[string]corev1.ContainerStateWaiting{}
	for name, why := range h {
		if name != "" { // the sandbox is in no status
			out[name] = corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}
		}
	}
	return out
}
