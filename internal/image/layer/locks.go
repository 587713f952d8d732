package layer

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"fairlead.run/internal/keylock"
)

// Locks lets two pulls that need the same blob or layer take turns, so that
// the second one finds it done. It has the shape that containerd's unpacker
// wants.
type Locks struct {
	locks keylock.Locks[string]
	held  sync.Map // key -> func()
}

// Lock waits for the key.
func (b *Locks) Lock(ctx context.Context, key string) error {
	unlock, err := b.locks.Lock(ctx, key)
	if err != nil {
		return err
	}
	b.held.Store(key, unlock)
	return nil
}

// Unlock gives the key to the next one.
func (b *Locks) Unlock(key string) {
	if unlock, ok := b.held.LoadAndDelete(key); ok {
		unlock.(func())()
	}
}

// Patient is a limiter that never fails. The unpacker does not wait for the
// downloads it has begun if it is refused another one, and a download that goes
// on after the pull has ended would leave its bytes behind. After cancellation
// the downloads fail by themselves, so letting them begin does no harm.
type Patient struct {
	Slots  *semaphore.Weighted
	unpaid atomic.Int64 // how many were let through without a slot
}

// Acquire waits for a slot until the context ends.
func (p *Patient) Acquire(ctx context.Context, n int64) error {
	if p.Slots.Acquire(ctx, n) != nil {
		p.unpaid.Add(n)
	}
	return nil
}

// Release gives back a slot or a debt, whichever is left. Both are gone when
// all are through.
func (p *Patient) Release(n int64) {
	if p.unpaid.Add(-n) < 0 {
		p.unpaid.Add(n)
		p.Slots.Release(n)
	}
}
