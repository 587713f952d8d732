package shown

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/view"
)

// Detail is what is known of a pod beyond its status, for people who read along.
type Detail struct {
	// Starting says that a postStart hook has not ended.
	Starting bool
	// Why is what keeps the pod from being ready: the container that waits longest for
	// its next start, or else the first one that runs and lacks something.
	Why string
	// Ended is how containers have ended that do not run, in words, by name.
	Ended map[string]string
	// Trouble is why something could not be done that is tried again; empty for nothing.
	Trouble string
}

// Equal says that there is nothing new in one of them.
func (d Detail) Equal(other Detail) bool {
	return d.Starting == other.Starting && d.Why == other.Why && d.Trouble == other.Trouble && maps.Equal(d.Ended, other.Ended)
}

// DetailOf is what there is to say of a pod now, by what the runtime has of it and by its
// plan.
func DetailOf(pod *corev1.Pod, seen *view.Pod, p plan.Plan) Detail {
	d := Detail{Ended: map[string]string{}, Why: whyPaused(seen, p)}
	for name, c := range seen.Containers {
		if c.Now != nil && view.StateOf(c.Now.GetState()) == plan.Exited {
			d.Ended[name] = view.DescribeExit(c)
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := seen.Containers[list[i].Name]
			if c == nil || c.Now == nil || view.StateOf(c.Now.GetState()) != plan.Running {
				continue
			}
			d.Starting = d.Starting || c.Care.Starts()
			if lacks := c.Care.Lacks(); lacks != "" && d.Why == "" {
				d.Why = "container " + list[i].Name + ": " + lacks
			}
		}
	}
	return d
}

// whyPaused tells of the container that waits longest for its next start.
func whyPaused(seen *view.Pod, p plan.Plan) string {
	text, last := "", time.Time{}
	for name, why := range p.Waiting {
		c := seen.Containers[name]
		if why.Reason != plan.CrashLoopBackOff || c == nil || c.Now == nil || why.Until.Before(last) {
			continue
		}
		last = why.Until
		text = fmt.Sprintf("container %s: %s; it is restarted after a pause of %s", name, view.DescribeExit(c), why.Pause)
	}
	return text
}
