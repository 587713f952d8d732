// Package undo takes back the steps of an operation that failed half-way.
//
// A step pushes its undo before it acts, so that a failure in the middle of
// the step is covered too; an undo therefore has to accept that its step never
// happened. It is not a transaction log: a Stack lives in memory and dies with
// the process, and what must survive a crash is in the pod's record.
//
//	var u undo.Stack
//	defer u.Rollback(ctx, &err)
//	u.Push("detach network", func(ctx context.Context) error { return net.Detach(ctx, id) })
//	if _, err := net.Attach(ctx, id); err != nil {
//		return err
//	}
package undo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// DefaultTimeout is what one undo may take where the Stack sets no Timeout.
const DefaultTimeout = 30 * time.Second

// Stack holds the undos of one operation. The zero value is ready for use, and
// its methods may be called by several goroutines.
type Stack struct {
	// Timeout bounds each undo by itself, so that one that hangs does not
	// leave the older ones without time. Zero means DefaultTimeout.
	Timeout time.Duration

	mu    sync.Mutex
	steps []step
}

type step struct {
	name string
	undo func(context.Context) error
	last bool
}

// Push adds an undo; name says in errors what could not be taken back.
// Call it before the step itself.
func (s *Stack) Push(name string, undo func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, step{name: name, undo: undo})
}

// PushLast is Push for an undo that is only done if all newer ones succeeded:
// forgetting what they take back. What is left of it is then still on record.
func (s *Stack) PushLast(name string, undo func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, step{name: name, undo: undo, last: true})
}

// Release forgets every undo: what was done so far is there to stay.
func (s *Stack) Release() {
	s.take()
}

// Rollback runs the undos, newest first, if *err is not nil or the function
// that deferred it is panicking; otherwise it forgets them. It has to be
// deferred directly. Each undo gets the values of ctx but neither its
// cancellation nor its deadline, because a cancelled request is the usual
// reason for being here. Every undo runs, whatever becomes of the others, and
// their failures are joined into *err. A panic goes on afterwards.
func (s *Stack) Rollback(ctx context.Context, err *error) {
	if p := recover(); p != nil {
		// The panic is what gets reported; a failed undo has nowhere to go.
		_ = s.run(ctx)
		panic(p)
	}
	if *err == nil {
		s.Release()
		return
	}
	if failed := s.run(ctx); failed != nil {
		*err = errors.Join(*err, failed)
	}
}

func (s *Stack) run(ctx context.Context) error {
	var failed []error
	steps := s.take()
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].last && len(failed) > 0 {
			continue
		}
		if err := s.runStep(ctx, steps[i]); err != nil {
			failed = append(failed, fmt.Errorf("undo %q: %w", steps[i].name, err))
		}
	}
	return errors.Join(failed...)
}

func (s *Stack) runStep(ctx context.Context, st step) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	timeout := s.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return st.undo(ctx)
}

func (s *Stack) take() []step {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := s.steps
	s.steps = nil
	return steps
}
