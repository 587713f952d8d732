package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// longest is how long an operation may take when nobody waits for it any more.
const longest = 4 * time.Minute

// flight joins equal operations: while one is in the air, the same request
// arriving again waits for its result instead of starting a second one.
//
// An operation does not end when its caller gives up. It goes on to its end,
// and the caller that comes back finds it in the air or its result in the
// record; nothing is ever "reserved" by an operation that is over.
type flight struct {
	mu      sync.Mutex
	byKey   map[string]*operation
	running sync.WaitGroup
}

type operation struct {
	name  string
	since time.Time
	stage atomic.Value // string
	done  chan struct{}
	id    string
	err   error
}

type stageKey struct{}

// enter notes in the operation that ctx belongs to what it is doing now.
func enter(ctx context.Context, stage string) {
	if op, ok := ctx.Value(stageKey{}).(*operation); ok {
		op.stage.Store(stage)
	}
}

// do runs f once for all callers with the same key, and returns what it
// returned. name is for errors: "run pod default/web".
func (f *flight) do(ctx context.Context, key, name string, run func(context.Context) (string, error)) (string, error) {
	op := f.join(ctx, key, name, run)
	select {
	case <-op.done:
		return op.id, op.err
	case <-ctx.Done():
		return "", fmt.Errorf("%s: still at stage %q after %s; it goes on, ask again for its result: %w",
			name, op.stage.Load(), time.Since(op.since).Round(time.Millisecond), context.Cause(ctx))
	}
}

func (f *flight) join(ctx context.Context, key, name string, run func(context.Context) (string, error)) *operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op := f.byKey[key]; op != nil {
		return op
	}
	op := &operation{name: name, since: time.Now(), done: make(chan struct{})}
	op.stage.Store("begin")
	if f.byKey == nil {
		f.byKey = map[string]*operation{}
	}
	f.byKey[key] = op
	f.running.Add(1)
	go f.fly(ctx, key, op, run)
	return op
}

func (f *flight) fly(ctx context.Context, key string, op *operation, run func(context.Context) (string, error)) {
	defer f.running.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	ctx = context.WithValue(ctx, stageKey{}, op)
	defer func() {
		if p := recover(); p != nil {
			op.err = fmt.Errorf("%s: panic at stage %q: %v", op.name, op.stage.Load(), p)
		}
		f.mu.Lock()
		delete(f.byKey, key)
		f.mu.Unlock()
		close(op.done)
	}()
	op.id, op.err = run(ctx)
	if op.err != nil {
		op.err = fmt.Errorf("%s: at stage %q after %s: %w",
			op.name, op.stage.Load(), time.Since(op.since).Round(time.Millisecond), op.err)
	}
}

// wait blocks until nothing is in the air.
func (f *flight) wait() { f.running.Wait() }
