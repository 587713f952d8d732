package runner

import (
	"fmt"

	"fairlead.run/internal/node/tend"
)

// told passes on what happened beside a container.
func (w *worker) told(n tend.Note) {
	if n.Reason != tend.Unhealthy { // the status of the pod says so
		w.note("container %s: %s", n.Container, n.Message)
	}
}

func (w *worker) note(format string, args ...any) {
	w.r.cfg.Observer.Note(fmt.Sprintf("pod %s: "+format, append([]any{w.plan.Pod.Key()}, args...)...))
}

// whyNotReady tells of the first container that runs and is not ready.
func (w *worker) whyNotReady() string {
	for _, ct := range allContainers(w.spec.Pod) {
		c := w.containers[ct.Name]
		if c == nil || c.exit != nil || c.removed {
			continue
		}
		if lacks := c.care.Lacks(); lacks != "" {
			return "container " + c.spec.Name + ": " + lacks
		}
	}
	return ""
}
