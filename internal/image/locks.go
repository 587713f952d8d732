package image

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"fairlead.run/internal/keylock"
)

// blobLocks lets two pulls that need the same blob or layer take turns, so that
// the second one finds it done. It has the shape that containerd's unpacker
// wants.
type blobLocks struct {
	locks keylock.Locks[string]
	held  sync.Map // key -> func()
}

func (b *blobLocks) Lock(ctx context.Context, key string) error {
	unlock, err := b.locks.Lock(ctx, key)
	if err != nil {
		return err
	}
	b.held.Store(key, unlock)
	return nil
}

func (b *blobLocks) Unlock(key string) {
	if unlock, ok := b.held.LoadAndDelete(key); ok {
		unlock.(func())()
	}
}

// patient is a limiter that never fails. The unpacker does not wait for the
// downloads it has begun if it is refused another one, and a download that goes
// on after the pull has ended would leave its bytes behind. After cancellation
// the downloads fail by themselves, so letting them begin does no harm.
type patient struct {
	slots  *semaphore.Weighted
	unpaid atomic.Int64 // how many were let through without a slot
}

func (p *patient) Acquire(ctx context.Context, n int64) error {
	if p.slots.Acquire(ctx, n) != nil {
		p.unpaid.Add(n)
	}
	return nil
}

// Release gives back a slot or a debt, whichever is left. Both are gone when
// all are through.
func (p *patient) Release(n int64) {
	if p.unpaid.Add(-n) < 0 {
		p.unpaid.Add(n)
		p.slots.Release(n)
	}
}
