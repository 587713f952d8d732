package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

const (
	// stageLimit is how long an operation may stay at one stage. Each stage has
	// bounds of its own that are shorter; this one is for what none of them saw.
	stageLimit = 4 * time.Minute
	// drainTime is how long operations may go on when the core is told to end,
	// and leaveTime how long they may then take to give up. What is not done by
	// then goes the way of a crash: the next start finds the intent.
	drainTime = 5 * time.Second
	leaveTime = 5 * time.Second
)

// flight joins equal operations: while one is in the air, the same request
// arriving again waits for its result instead of starting a second one.
//
// An operation does not end when its caller gives up. It goes on to its end,
// and the caller that comes back finds it in the air or its result in the
// record; nothing is ever "reserved" by an operation that is over.
type flight struct {
	mu      sync.Mutex
	byKey   map[string]*operation
	all     map[*operation]struct{}
	ending  bool
	running sync.WaitGroup
}

// task is one thing to do.
type task struct {
	// key is the same for the same request. Empty: the request never joins.
	key string
	// asked are the particulars of the request. One with the same key and other
	// particulars is a different request, and refused while this one is in the air.
	asked asked
	about About
	// grace is waiting that the caller asked for, on top of stageLimit.
	grace time.Duration
}

// asked is what a request asks for, as far as it may differ under one key.
type asked struct {
	handler string // "" is whatever the default turns out to be
	config  []byte
}

func ask(handler string, config any) (asked, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return asked{}, fmt.Errorf("compare requests: %w: %w", errdefs.ErrInternal, err)
	}
	return asked{handler: handler, config: data}, nil
}

func (a asked) same(b asked) bool {
	return bytes.Equal(a.config, b.config) && (a.handler == b.handler || a.handler == "" || b.handler == "")
}

// operation is a task in the air. id and err are valid once done is closed.
type operation struct {
	task
	began   time.Time
	stage   atomic.Pointer[stage]
	late    *time.Timer // ends the operation that stays at one stage
	cancel  context.CancelCauseFunc
	waiting atomic.Int32
	done    chan struct{}
	id      string
	err     error
}

// stage is what an operation is doing, and since when.
type stage struct {
	name  string
	since time.Time
}

func newOperation(t task, cancel context.CancelCauseFunc) *operation {
	op := &operation{task: t, began: time.Now(), cancel: cancel, done: make(chan struct{})}
	limit := stageLimit + t.grace
	op.late = time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("nothing has moved for %s: %w", limit, errdefs.ErrDeadline))
	})
	op.enter("begin")
	return op
}

func (op *operation) enter(name string) {
	op.stage.Store(&stage{name, time.Now()})
	op.late.Reset(stageLimit + op.grace)
}

// where is for errors: the stage and the age.
func (op *operation) where() (stage string, age time.Duration) {
	return op.stage.Load().name, time.Since(op.began).Round(time.Millisecond)
}

type operationKey struct{}

// enter notes in the operation that ctx belongs to what it is doing now.
func enter(ctx context.Context, stage string) {
	if op, ok := ctx.Value(operationKey{}).(*operation); ok {
		op.enter(stage)
	}
}

// do runs a task once for all callers with the same key, and returns what it
// returned.
func (f *flight) do(ctx context.Context, t task, run func(context.Context) (string, error)) (string, error) {
	op, err := f.join(ctx, t, run)
	if err != nil {
		return "", err
	}
	op.waiting.Add(1)
	defer op.waiting.Add(-1)
	select {
	case <-op.done:
		return op.id, op.err
	case <-ctx.Done():
		stage, age := op.where()
		return "", fmt.Errorf("%s: still at stage %q after %s; it goes on, ask again for its result: %w",
			t.about, stage, age, context.Cause(ctx))
	}
}

// join finds the operation of a task, or starts one.
func (f *flight) join(ctx context.Context, t task, run func(context.Context) (string, error)) (*operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op := f.byKey[t.key]; op != nil && t.key != "" {
		if !op.asked.same(t.asked) {
			stage, age := op.where()
			return nil, fmt.Errorf("%s: a request with the same name asked for it differently, has been at work for %s and is at stage %q; wait for its end: %w",
				t.about, age, stage, errdefs.ErrAlreadyExists)
		}
		return op, nil
	}
	if f.ending {
		return nil, fmt.Errorf("%s: the daemon is ending; ask the next one: %w", t.about, errdefs.ErrUnavailable)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	op := newOperation(t, cancel)
	f.add(op)
	f.running.Add(1)
	go f.fly(ctx, op, run)
	return op, nil
}

// add lists an operation. f.mu is held.
func (f *flight) add(op *operation) {
	if f.all == nil {
		f.byKey, f.all = map[string]*operation{}, map[*operation]struct{}{}
	}
	f.all[op] = struct{}{}
	if op.key != "" {
		f.byKey[op.key] = op
	}
}

func (f *flight) fly(ctx context.Context, op *operation, run func(context.Context) (string, error)) {
	defer f.running.Done()
	ctx = context.WithValue(ctx, operationKey{}, op)
	defer f.land(op)
	defer func() {
		if p := recover(); p != nil {
			stage, _ := op.where()
			op.err = fmt.Errorf("%s: panic at stage %q: %v: %w", op.about, stage, p, errdefs.ErrInternal)
		}
	}()
	op.id, op.err = run(ctx)
	if op.err != nil {
		stage, age := op.where()
		op.err = fmt.Errorf("%s: at stage %q after %s: %w", op.about, stage, age, op.err)
	}
}

// land ends an operation: those who wait for it are told, and the next request
// starts another.
func (f *flight) land(op *operation) {
	op.late.Stop()
	f.mu.Lock()
	delete(f.all, op)
	if f.byKey[op.key] == op {
		delete(f.byKey, op.key)
	}
	f.mu.Unlock()
	close(op.done)
	op.cancel(nil)
}

// follow lists what the caller itself does until it calls done. It has no
// result that others could wait for, and only its caller's context ends it:
// what it leaves behind, a session perhaps, may live on in that.
func (f *flight) follow(ctx context.Context, about About) (_ context.Context, done func()) {
	op := newOperation(task{about: about}, func(error) {})
	op.waiting.Store(1)
	f.mu.Lock()
	f.add(op)
	f.mu.Unlock()
	return context.WithValue(ctx, operationKey{}, op), sync.OnceFunc(func() { f.land(op) })
}

// errPodStops is why the making of a container ends early.
var errPodStops = errors.New("its pod is being stopped")

// giveUp ends the operations that make containers of a pod, and waits for them.
// Nobody may start another meanwhile.
func (f *flight) giveUp(ctx context.Context, id pod.ID) error {
	making := f.making(id)
	for _, op := range making {
		op.cancel(fmt.Errorf("%w: %w", errPodStops, errdefs.ErrPrecondition))
	}
	for _, op := range making {
		if err := op.landed(ctx); err != nil {
			return err
		}
	}
	return nil
}

// landed waits for the end of another operation, whatever its result.
func (op *operation) landed(ctx context.Context) error {
	enter(ctx, "wait for the end of: "+op.about.String())
	select {
	case <-op.done:
		return nil
	case <-ctx.Done():
		stage, age := op.where()
		return fmt.Errorf("%s is still at stage %q after %s: %w", op.about, stage, age, context.Cause(ctx))
	}
}

// settle waits for the end of the operation with that key, if there is one.
func (f *flight) settle(ctx context.Context, key string) error {
	f.mu.Lock()
	op := f.byKey[key]
	f.mu.Unlock()
	if op == nil {
		return nil
	}
	return op.landed(ctx)
}

func (f *flight) making(id pod.ID) []*operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*operation
	for op := range f.all {
		if op.about.Pod == id && (op.about.Verb == verbCreate || op.about.Verb == verbStart) {
			out = append(out, op)
		}
	}
	return out
}

// end takes no new operations, waits for those in the air, and gives them up
// when that takes too long. It returns those that are stuck even then: in a
// system call, most likely, that nobody can end.
func (f *flight) end(drain, leave time.Duration) []Operation {
	f.mu.Lock()
	f.ending = true
	f.mu.Unlock()
	landed := make(chan struct{})
	go func() { // ends with the last operation, or with the process
		defer close(landed)
		f.running.Wait()
	}()
	if within(landed, drain) {
		return nil
	}
	f.mu.Lock()
	for op := range f.all {
		op.cancel(fmt.Errorf("the daemon is ending: %w", errdefs.ErrUnavailable))
	}
	f.mu.Unlock()
	if within(landed, leave) {
		return nil
	}
	return f.list()
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
