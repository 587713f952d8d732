// Package inflight lists what an image store is doing, and joins pulls that are
// the same. It does not pull: what a pull is and results in is up to its user.
package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/progress"
)

// Operation is one thing that is being done at this moment.
type Operation struct {
	Verb    string // "pull", "import"
	Name    string // of the image; empty where the operation is about many
	Stage   string // for people, with how much of it is done
	Began   time.Time
	Waiting int // callers who wait for the end
}

// Task says what Do is to do.
type Task struct {
	// Key is the same for requests that want the same thing.
	Key  string
	Verb string
	Name string
	// Stay has the task go on after its last caller has given up. One caller
	// who wants that is enough.
	Stay bool
	// Report is called about ten times a second on the caller's goroutine, and
	// once at the end. Nil: nobody looks.
	Report func(progress.State)
	// Passed, unless nil, is called once, on the caller's goroutine when its wait is
	// over: with all phases that the task has come to, whoever began it.
	Passed func([]progress.Passage)
}

// Set is what is in flight. T is what pulls result in. The zero value is ready
// for use.
type Set[T any] struct {
	mu     sync.Mutex
	byKey  map[string]*operation[T]
	all    map[*operation[T]]struct{} // byKey, those that everybody has left, and those of Follow
	closed bool
}

// operation is one task in flight. result and err are valid once done is closed.
type operation[T any] struct {
	task    Task
	began   time.Time
	callers int
	cancel  context.CancelCauseFunc // nil for those of Follow
	done    chan struct{}
	// snapshot tells the stage, and how far it has come where that is known.
	snapshot func() progress.State
	passed   func() []progress.Passage // nil for those of Follow
	result   T
	err      error
}

// Ended is why an operation was told to stop. HTTP clients return the cause of
// a cancelled context in place of context.Canceled, so it has to be that too.
type Ended string

// Error implements error.
func (e Ended) Error() string { return string(e) }

// Unwrap makes it a cancellation.
func (e Ended) Unwrap() error { return context.Canceled }

const (
	errAbandoned Ended = "every caller has given up"
	errClosing   Ended = "the image store is closing"
)

// Do runs a task, or joins the one in flight that has the same key, until it is
// done or ctx ends. A task that nobody waits for any more is ended, unless a
// caller wanted it to stay. The goroutine that runs it ends with it; Close
// waits for that.
func (s *Set[T]) Do(ctx context.Context, t Task, run func(context.Context, *progress.Tracker) (T, error)) (T, error) {
	op, err := s.join(ctx, t, run)
	var none T
	if err != nil {
		return none, err
	}
	defer s.leave(op)
	err = op.wait(ctx, t.Report)
	if t.Passed != nil {
		t.Passed(op.passed())
	}
	if err != nil {
		return none, fmt.Errorf("%s image %s: %w", t.Verb, t.Name, err)
	}
	return op.result, op.err
}

func (s *Set[T]) join(ctx context.Context, t Task, run func(context.Context, *progress.Tracker) (T, error)) (*operation[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%s image %s: %w: %w", t.Verb, t.Name, errClosing, errdefs.ErrUnavailable)
	}
	if op := s.byKey[t.Key]; op != nil {
		op.callers++
		op.task.Stay = op.task.Stay || t.Stay
		return op, nil
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	track := progress.NewTracker(t.Name)
	op := &operation[T]{task: t, began: time.Now(), callers: 1, cancel: cancel, done: make(chan struct{}), snapshot: track.Snapshot, passed: track.Passed}
	s.add(op)
	s.byKey[t.Key] = op
	go func() {
		defer cancel(nil)
		defer s.finish(op)
		op.result, op.err = run(ctx, track)
	}()
	return op, nil
}

// add lists an operation. s.mu is held.
func (s *Set[T]) add(op *operation[T]) {
	if s.all == nil {
		s.byKey, s.all = map[string]*operation[T]{}, map[*operation[T]]struct{}{}
	}
	s.all[op] = struct{}{}
}

func (s *Set[T]) finish(op *operation[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(op)
	delete(s.all, op)
	close(op.done)
}

// forget keeps later callers from joining the operation.
func (s *Set[T]) forget(op *operation[T]) {
	if s.byKey[op.task.Key] == op {
		delete(s.byKey, op.task.Key)
	}
}

// leave is a caller's end of interest.
func (s *Set[T]) leave(op *operation[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op.callers--
	if op.callers == 0 && !op.task.Stay {
		s.forget(op)
		op.cancel(errAbandoned)
	}
}

// Follow lists what the caller itself does until it calls done. Nobody joins it.
// snapshot tells how far it has come.
func (s *Set[T]) Follow(verb, name string, snapshot func() progress.State) (done func()) {
	op := &operation[T]{task: Task{Verb: verb, Name: name}, began: time.Now(), callers: 1, snapshot: snapshot}
	s.mu.Lock()
	s.add(op)
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, op)
	}
}

// List returns what is in flight, the oldest first.
func (s *Set[T]) List() []Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Operation, 0, len(s.all))
	for op := range s.all {
		out = append(out, Operation{
			Verb: op.task.Verb, Name: op.task.Name, Stage: op.snapshot().String(),
			Began: op.began, Waiting: op.callers,
		})
	}
	slices.SortFunc(out, func(a, b Operation) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Close ends all tasks and waits until they have cleaned up, but no longer than
// limit. The error names what is still in flight then.
func (s *Set[T]) Close(limit time.Duration) error {
	s.mu.Lock()
	s.closed = true
	var waiting []*operation[T]
	for op := range s.all {
		if op.cancel == nil {
			continue // its caller's to end
		}
		op.cancel(errClosing)
		waiting = append(waiting, op)
	}
	s.mu.Unlock()
	late := time.After(limit)
	for _, op := range waiting {
		select {
		case <-op.done:
		case <-late:
			return fmt.Errorf("%s %s does not end: it is at stage %q after %s: %w",
				op.task.Verb, op.task.Name, op.snapshot(), op.age(), errdefs.ErrDeadline)
		}
	}
	return nil
}

func (op *operation[T]) age() time.Duration { return time.Since(op.began).Round(time.Millisecond) }

// wait returns when the operation is done or the caller's context ends.
func (op *operation[T]) wait(ctx context.Context, report func(progress.State)) error {
	var tick <-chan time.Time
	if report != nil {
		t := time.NewTicker(progress.Interval)
		defer t.Stop()
		tick = t.C
		report(op.snapshot())
	}
	for {
		select {
		case <-op.done:
			if report != nil {
				report(op.snapshot())
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("still at stage %q after %s: %w", op.snapshot(), op.age(), callerError(ctx))
		case <-tick:
			report(op.snapshot())
		}
	}
}

// callerError is why the caller's context ended, in our kinds.
func callerError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the caller's deadline has passed: %w: %w", context.Cause(ctx), errdefs.ErrDeadline)
	}
	return fmt.Errorf("the caller has given up: %w", context.Cause(ctx))
}
