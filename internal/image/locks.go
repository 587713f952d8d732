package image

import (
	"context"
	"sync"

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
