package ops

import (
	"sync"
	"time"
)

// Step is a stage that an operation went through.
type Step struct {
	Stage string  `json:"stage"`
	MS    float64 `json:"ms"` // milliseconds
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
