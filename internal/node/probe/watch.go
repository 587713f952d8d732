package probe

import (
	"context"
	"sync"
	"time"

	"fairlead.run/internal/node/slots"
)

// held is how long a try may keep its slot: none waits for another one's timeout.
const held = 50 * time.Millisecond

// NewSlots bounds how many tries begin at a time.
func NewSlots(n int) *slots.Slots { return slots.New(n) }

// Watch probes one attempt at a container for as long as it runs.
type Watch struct {
	target Target
	slots  *slots.Slots
	told   Told

	mu      sync.Mutex
	machine *Machine
	warned  map[Kind]string
}

// Told is who hears of a Watch. They are called from its goroutine and must not
// wait.
type Told struct {
	Changed func()             // after each change of the status
	Warned  func(Kind, string) // of a success that is not what it should be; not twice in a row
	Failed  func(Kind, string) // of each try that failed; nil if nobody listens
	Errored func(Kind, string) // of each try that could not be made; nil if nobody listens
	// Tried hears of each try, and how long its answer took; nil if nobody listens.
	Tried func(Kind, Outcome, time.Duration)
}

// NewWatch makes the watch over a container that began to run then, as the runtime says.
func NewWatch(t Target, began time.Time, s *slots.Slots, told Told) *Watch {
	began = since(began, time.Now())
	return &Watch{
		target: t, slots: s, told: told,
		machine: NewMachine(t.Container, began), warned: map[Kind]string{},
	}
}

// since is that time by a clock that nobody sets, which that of now has. A time to come was
// told before the clock was set back: nobody knows how long ago that was, and probes must
// not wait until the clock is there again.
func since(began, now time.Time) time.Time {
	return now.Add(-max(now.Sub(began), 0))
}

// Assume says what the probes had come to before; see Machine.Assume. It is called before
// Run.
func (w *Watch) Assume(up, ready bool) { w.machine.Assume(up, ready) }

// Status is what the probes have come to.
func (w *Watch) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.Status()
}

// Leave says that the container is being ended; see Machine.Leave.
func (w *Watch) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machine.Leave()
}

// answer is the result of a try.
type answer struct {
	Kind
	Result
	took time.Duration
}

// Run probes until ctx ends, and waits for the tries that are under way.
func (w *Watch) Run(ctx context.Context) error {
	answers := make(chan answer)
	var tries sync.WaitGroup
	defer tries.Wait()
	for {
		kinds, wait := w.begin()
		for _, k := range kinds {
			tries.Go(func() {
				a := w.try(ctx, k)
				select {
				case answers <- a:
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		case a := <-answers:
			w.take(a)
		}
	}
}

// begin says what to try now, and returns a channel that tells when there is
// more; nil if only an answer can bring that.
func (w *Watch) begin() ([]Kind, <-chan time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	kinds, next := w.machine.Begin(now)
	if next.IsZero() {
		return kinds, nil
	}
	return kinds, time.After(next.Sub(now))
}

func (w *Watch) try(ctx context.Context, k Kind) answer {
	release, err := w.slots.Take(ctx, held)
	if err != nil {
		return answer{Kind: k, Result: Result{Outcome: Unknown}} // the watch ends
	}
	defer release()
	began := time.Now()
	r := w.target.Try(ctx, Of(w.target.Container, k))
	if ctx.Err() != nil { // it says nothing about the container
		r = Result{Outcome: Unknown}
	}
	return answer{k, r, time.Since(began)}
}

func (w *Watch) take(a answer) {
	w.mu.Lock()
	before := w.machine.Status()
	w.machine.Done(a.Kind, a.Result)
	after := w.machine.Status()
	warning := ""
	if a.Outcome == Success && w.warned[a.Kind] != a.Message {
		warning, w.warned[a.Kind] = a.Message, a.Message
	}
	w.mu.Unlock()
	if w.told.Tried != nil {
		w.told.Tried(a.Kind, a.Outcome, a.took)
	}
	if warning != "" {
		w.told.Warned(a.Kind, warning)
	}
	if a.Outcome == Failure && w.told.Failed != nil {
		w.told.Failed(a.Kind, a.Message)
	}
	if a.Outcome == Unknown && a.Message != "" && w.told.Errored != nil {
		w.told.Errored(a.Kind, a.Message)
	}
	if before != after {
		w.told.Changed()
	}
}
