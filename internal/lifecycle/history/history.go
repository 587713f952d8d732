// Package history remembers how long the stages of the last operations on pods
// and containers took, for people who ask where the time of a start went.
//
// It is memory of a bounded size that the end of the daemon empties. What is
// being done now is package ops's, and what came of it the records'.
package history

import (
	"slices"
	"sync"
	"time"

	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

// What is kept: some hundred kB at most.
const (
	maxOperations = 512
	maxSteps      = 32
)

// of are the verbs that a start and an end consist of, the pulls for it included. There may be any number
// of others, such as probes.
var of = []string{ops.Run, ops.Create, ops.Start, ops.Stop, ops.Remove, ops.Pull}

// start are those of a start.
var start = []string{ops.Run, ops.Create, ops.Start}

// History is ready for use as its zero value.
type History struct {
	mu   sync.Mutex
	all  []ops.Ended // a ring once it is full
	next int
}

// Add remembers an operation that has ended.
func (h *History) Add(e ops.Ended) {
	if !slices.Contains(of, e.Verb) || e.Pod == "" && len(e.For) == 0 {
		return
	}
	if len(e.Steps) > maxSteps {
		e.Steps = slices.Clone(e.Steps[:maxSteps])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) < maxOperations {
		h.all = append(h.all, e)
		return
	}
	h.all[h.next] = e
	h.next = (h.next + 1) % maxOperations
}

// Of returns the operations on a pod and its containers, and the pulls of images
// for it, the oldest first. named is what those know of it that were over before
// it was made.
func (h *History) Of(id pod.ID, named pod.Metadata) []ops.Ended {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []ops.Ended
	for _, e := range slices.Concat(h.all[h.next:], h.all[:h.next]) {
		if e.Pod == id || e.Pod == "" && slices.Contains(e.For, named) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b ops.Ended) int { return a.Began.Compare(b.Began) })
	return out
}

// StartMedians is how long it took to run a pod, to create a container and to
// start it, the medians of the three added up, by handler. A handler on which
// one of them has not been done lately is not in it.
func (h *History) StartMedians() map[string]time.Duration {
	took := map[string]map[string][]time.Duration{}
	h.mu.Lock()
	for _, e := range h.all {
		if e.Err != nil || !slices.Contains(start, e.Verb) {
			continue
		}
		if took[e.Handler] == nil {
			took[e.Handler] = map[string][]time.Duration{}
		}
		took[e.Handler][e.Verb] = append(took[e.Handler][e.Verb], e.Took)
	}
	h.mu.Unlock()
	out := map[string]time.Duration{}
	for handler, verbs := range took {
		if len(verbs) < len(start) {
			continue
		}
		for _, times := range verbs {
			slices.Sort(times)
			out[handler] += times[len(times)/2]
		}
	}
	return out
}
