package runtime

import (
	"context"
	"sync"
)

// background does one thing at a time for callers who do not want to wait for
// its end: it may be a look at a program on a file system that hangs.
type background struct {
	mu   sync.Mutex
	done chan struct{} // closed when it is done; nil before the first time
	late bool          // somebody has waited for it in vain
}

// run starts f, unless it still runs from an earlier call.
func (b *background) run(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done != nil && !closed(b.done) {
		return
	}
	done := make(chan struct{})
	b.done, b.late = done, false
	go func() {
		defer close(done)
		f()
	}()
}

// await waits for the end of f, or of ctx. What was late once is not waited for
// again.
func (b *background) await(ctx context.Context) {
	b.mu.Lock()
	done, late := b.done, b.late
	b.mu.Unlock()
	if late {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.late = b.late || b.done == done
	}
}

// leave waits for the end of f, which was told to end, or of ctx.
func (b *background) leave(ctx context.Context) {
	b.mu.Lock()
	done := b.done
	b.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
