package ops

import (
	"sync"
	"time"

	"fairlead.run/internal/pod"
)

// Step is a stage that an operation went through.
type Step struct {
	Stage string  `json:"stage"`
	MS    float64 `json:"ms"` // milliseconds
}

// Ended is an operation that is over.
type Ended struct {
	About
	Handler string // as the request names it, where it does
	Parent  string // the caller's span, as telemetry.Parent has it
	Began   time.Time
	Took    time.Duration
	Steps   []Step
	Err     error
	// For are the pods that an image was pulled for, which may be made after that.
	For []pod.Metadata
}

// ended is the operation as it is over, with the id of what it has made.
func (op *operation) ended(now time.Time) Ended {
	e := Ended{
		About: op.About, Handler: op.Asked.handler, Parent: op.parent, Began: op.began, Took: now.Sub(op.began), Steps: op.trail.steps(now), Err: op.err,
	}
	if op.err == nil && op.id != "" {
		switch {
		case e.Kind == KindPod && e.Pod == "":
			e.Pod = pod.ID(op.id)
		case e.Kind == KindContainer && e.Container == "":
			e.Container = pod.ContainerID(op.id)
		}
	}
	return e
}

// trail is the way of one operation. The zero value is ready for use.
type trail struct {
	mu     sync.Mutex
	places []place
}

func (t *trail) add(p place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.places = append(t.places, p)
}

// steps are the stages up to now, in their order.
func (t *trail) steps(now time.Time) []Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Step, 0, len(t.places))
	for i, p := range t.places {
		until := now
		if i+1 < len(t.places) {
			until = t.places[i+1].since
		}
		out = append(out, Step{p.stage, float64(until.Sub(p.since)) / float64(time.Millisecond)})
	}
	return out
}
