// Package ops keeps the ledger of what is being done: it joins requests that
// are the same, lets operations go on without their callers, and tells at which
// stage each one is and since when.
//
// It does nothing to pods itself and keeps nothing beyond the end of an
// operation: what came of it is in the pod's record.
package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/stage"
	"fairlead.run/internal/telemetry"
)

// stageLimit is how long an operation may stay at one stage. Each stage has
// bounds of its own that are shorter; this one is for what none of them saw.
const stageLimit = 4 * time.Minute

// Ledger is what is in flight. It joins equal operations: while one is at work,
// the same request arriving again waits for its result instead of starting a
// second one. The zero value is ready for use.
//
// An operation does not end when its caller gives up. It goes on to its end,
// and the caller that comes back finds it in flight or its result in the
// record; nothing is ever "reserved" by an operation that is over.
type Ledger struct {
	// Trace, unless nil, is told of each operation that ended. It is set before
	// the first operation.
	Trace func(Ended)

	mu      sync.Mutex
	byKey   map[string]*operation
	all     map[*operation]struct{}
	bans    map[*ban]struct{}
	ending  bool
	running sync.WaitGroup
}

// Task is one thing to do.
type Task struct {
	// Key is the same for the same request. Empty: the request never joins.
	Key string
	// Asked are the particulars of the request. One with the same key and other
	// particulars is a different request, and refused while this one is in flight.
	Asked Asked
	About About
	// Grace is waiting that the caller asked for, on top of what a stage may take.
	Grace time.Duration
}

// Asked is what a request asks for, as far as it may differ under one key. Make
// it with Ask.
type Asked struct {
	handler string
	config  []byte
}

// Ask notes the handler, of which "" is whatever the default turns out to be,
// and the configuration that a request names.
func Ask(handler string, config any) (Asked, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return Asked{}, fmt.Errorf("compare requests: %w: %w", errdefs.ErrInternal, err)
	}
	return Asked{handler: handler, config: data}, nil
}

func (a Asked) same(b Asked) bool {
	return bytes.Equal(a.config, b.config) && (a.handler == b.handler || a.handler == "" || b.handler == "")
}

// operation is a Task in flight. id and err are valid once done is closed.
type operation struct {
	Task
	began   time.Time
	at      atomic.Pointer[place]
	late    *time.Timer // ends the operation that stays at one stage
	cancel  context.CancelCauseFunc
	waiting atomic.Int32
	done    chan struct{}
	trail   *trail // nil if nobody traces
	parent  string // the span of the caller that was the first
	id      string
	err     error
}

// place is the stage that an operation is at, and since when.
type place struct {
	stage string
	since time.Time
}

func (l *Ledger) newOperation(t Task, cancel context.CancelCauseFunc) *operation {
	op := &operation{Task: t, began: time.Now(), cancel: cancel, done: make(chan struct{})}
	if l.Trace != nil {
		op.trail = &trail{}
	}
	limit := stageLimit + t.Grace
	op.late = time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("nothing has moved for %s: %w", limit, errdefs.ErrDeadline))
	})
	op.enter("begin")
	return op
}

func (op *operation) enter(name string) {
	p := place{name, time.Now()}
	op.at.Store(&p)
	if op.trail != nil {
		op.trail.add(p)
	}
	op.late.Reset(stageLimit + op.Grace)
}

// where is for errors: the stage and the age.
func (op *operation) where() (at string, age time.Duration) {
	return op.at.Load().stage, time.Since(op.began).Round(time.Millisecond)
}

// Do runs a task once for all callers with the same key, and returns what it
// returned.
func (l *Ledger) Do(ctx context.Context, t Task, run func(context.Context) (string, error)) (string, error) {
	op, err := l.join(ctx, t, run)
	if err != nil {
		return "", err
	}
	op.waiting.Add(1)
	defer op.waiting.Add(-1)
	select {
	case <-op.done:
		return op.id, op.err
	case <-ctx.Done():
		at, age := op.where()
		return "", fmt.Errorf("%s: still at stage %q after %s; it goes on, ask again for its result: %w",
			t.About, at, age, context.Cause(ctx))
	}
}

// Begin is Do without waiting for the end.
func (l *Ledger) Begin(ctx context.Context, t Task, run func(context.Context) error) error {
	_, err := l.join(ctx, t, func(ctx context.Context) (string, error) { return "", run(ctx) })
	return err
}

// join finds the operation of a task, or starts one.
func (l *Ledger) join(ctx context.Context, t Task, run func(context.Context) (string, error)) (*operation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op := l.byKey[t.Key]; op != nil && t.Key != "" {
		if !op.Asked.same(t.Asked) {
			at, age := op.where()
			return nil, fmt.Errorf("%s: a request with the same name asked for it differently, has been at work for %s and is at stage %q; wait for its end: %w",
				t.About, age, at, errdefs.ErrAlreadyExists)
		}
		return op, nil
	}
	if l.ending {
		return nil, fmt.Errorf("%s: the daemon is ending; ask the next one: %w", t.About, errdefs.ErrUnavailable)
	}
	if err := l.banned(t.About); err != nil {
		return nil, fmt.Errorf("%s: %w", t.About, err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	op := l.newOperation(t, cancel)
	op.parent = telemetry.Parent(ctx)
	l.add(op)
	l.running.Add(1)
	go l.fly(ctx, op, run)
	return op, nil
}

// add lists an operation. l.mu is held.
func (l *Ledger) add(op *operation) {
	if l.all == nil {
		l.byKey, l.all = map[string]*operation{}, map[*operation]struct{}{}
	}
	l.all[op] = struct{}{}
	if op.Key != "" {
		l.byKey[op.Key] = op
	}
}

func (l *Ledger) fly(ctx context.Context, op *operation, run func(context.Context) (string, error)) {
	defer l.running.Done()
	ctx = stage.With(ctx, op.enter)
	defer l.land(op)
	defer func() {
		if p := recover(); p != nil {
			at, _ := op.where()
			op.err = fmt.Errorf("%s: panic at stage %q: %v: %w", op.About, at, p, errdefs.ErrInternal)
		}
	}()
	op.id, op.err = run(ctx)
	if op.err != nil {
		at, age := op.where()
		op.err = fmt.Errorf("%s: at stage %q after %s: %w", op.About, at, age, op.err)
	}
}

// land ends an operation: those who wait for it are told, and the next request
// starts another.
func (l *Ledger) land(op *operation) {
	op.late.Stop()
	l.mu.Lock()
	delete(l.all, op)
	if l.byKey[op.Key] == op {
		delete(l.byKey, op.Key)
	}
	l.mu.Unlock()
	if op.trail != nil {
		l.Trace(op.ended(time.Now()))
	}
	close(op.done)
	op.cancel(nil)
}

// Follow lists what the caller itself does until it calls done. It has no
// result that others could wait for. Its end does not end the context: what it
// leaves behind, a session perhaps, may live on in that.
func (l *Ledger) Follow(ctx context.Context, about About) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	op := l.newOperation(Task{About: about}, func(why error) {
		if why != nil {
			cancel(why)
		}
	})
	op.parent = telemetry.Parent(ctx)
	op.waiting.Store(1)
	l.mu.Lock()
	l.add(op)
	l.mu.Unlock()
	return stage.With(ctx, op.enter), sync.OnceFunc(func() { l.land(op) })
}

// End takes no new operations, waits for those in flight for drain, and gives
// them up for leave. It returns those that are stuck even then: in a system
// call, most likely, that nobody can end. What they have half done goes the way
// of a crash.
func (l *Ledger) End(drain, leave time.Duration) []Operation {
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	landed := make(chan struct{})
	go func() { // ends with the last operation, or with the process
		defer close(landed)
		l.running.Wait()
	}()
	if within(landed, drain) {
		return nil
	}
	l.mu.Lock()
	for op := range l.all {
		op.cancel(fmt.Errorf("the daemon is ending: %w", errdefs.ErrUnavailable))
	}
	l.mu.Unlock()
	if within(landed, leave) {
		return nil
	}
	return l.List()
}

// within says whether c is closed before d has passed.
func within(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}
