package load

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Times collects durations under names. Many goroutines may add at once.
type Times struct {
	mu  sync.Mutex
	all map[string][]float64
}

// add takes a duration, in milliseconds. A nil Times drops it.
func (t *Times) add(name string, d time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string][]float64{}
	}
	t.all[name] = append(t.all[name], float64(d)/float64(time.Millisecond))
}

// All are the durations so far, in milliseconds.
func (t *Times) All() map[string][]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := maps.Clone(t.all)
	for k, v := range out {
		out[k] = slices.Clone(v)
	}
	return out
}
