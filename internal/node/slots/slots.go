// Package slots bounds how much begins at a time, so that not all of a full node
// starts in one moment. What takes long gives its slot back while it goes on: so what
// hangs holds up nobody.
package slots

import (
	"context"
	"time"
)

// Slots are a number of them. Use New.
type Slots struct{ free chan struct{} }

// New makes n.
func New(n int) *Slots { return &Slots{free: make(chan struct{}, n)} }

// Take waits for a slot, which is held for some time at most. The call that gives it back
// says whether it was still held.
func (s *Slots) Take(ctx context.Context, held time.Duration) (release func() bool, err error) {
	select {
	case s.free <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	timer := time.AfterFunc(held, func() { <-s.free })
	return func() bool {
		inTime := timer.Stop()
		if inTime {
			<-s.free
		}
		return inTime
	}, nil
}
