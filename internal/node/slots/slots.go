// Package slots bounds how much begins at a time, so that not all of a full node
// starts in one moment. What takes long gives its slot back while it goes on: so what
// hangs holds up nobody.
package slots

import (
	"context"
	"sync"
	"time"
)

// Slots are a number of them. Use New.
type Slots struct {
	free chan struct{}
	held time.Duration
}

// New makes n, each of which is held for some time at most.
func New(n int, held time.Duration) *Slots {
	return &Slots{free: make(chan struct{}, n), held: held}
}

// Take waits for a slot. It is given back by a call, or when its time is over.
func (s *Slots) Take(ctx context.Context) (release func(), err error) {
	select {
	case s.free <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	back := sync.OnceFunc(func() { <-s.free })
	timer := time.AfterFunc(s.held, back)
	return func() {
		timer.Stop()
		back()
	}, nil
}
