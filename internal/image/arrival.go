package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/containerd/v2/core/leases"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/staging"
)

// arrival is an image, or the images of an archive, between the first blob and
// the record. Blobs are on its stage. Layers are kept from being collected by a
// lease, which is made with the first of them. Its end has to be called.
type arrival struct {
	*staging.Stage
	s      *Store
	id     string // of the lease
	single bool   // the lease ends with the first record, not only at the end

	mu     sync.Mutex // held for a whole transaction
	leased bool       // there is a lease
}

// arrive begins the arrival of an image.
func (s *Store) arrive() *arrival {
	a := &arrival{Stage: s.files.New(s.content()), s: s, id: rand.Text()}
	s.held.Add(a.id) // an audit would take what arrives for leftovers
	return a
}

// update lets f change layers in one transaction, under the lease.
func (a *arrival) update(ctx context.Context, f func(ctx context.Context) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.s.update(ctx, func(ctx context.Context) error {
		if !a.leased {
			if _, err := a.s.leases.Create(ctx, leases.WithID(a.id)); err != nil {
				return fmt.Errorf("protect layers from garbage collection: %w", err)
			}
		}
		return f(leases.WithLease(ctx, a.id))
	})
	if err != nil || a.leased {
		return err
	}
	a.leased = true
	return failpoint.Hit(pullLeased)
}

// register puts what has arrived on record, and lets f say what it is called,
// in one transaction.
func (a *arrival) register(ctx context.Context, f func(ctx context.Context) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ends := a.single && a.leased
	err := a.s.update(ctx, func(ctx context.Context) error {
		if err := a.Register(ctx); err != nil {
			return err
		}
		if err := f(ctx); err != nil || !ends {
			return err
		}
		return a.s.leases.Delete(ctx, leases.Lease{ID: a.id})
	})
	if err == nil && ends {
		a.leased = false
	}
	return err
}

// end lets go of what has arrived. With collect set it also takes away what
// nobody else needs.
func (a *arrival) end(ctx context.Context, collect bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	defer a.s.held.Drop(a.id)
	err := a.Release(ctx)
	if a.leased {
		if e := a.s.leases.Delete(ctx, leases.Lease{ID: a.id}); e != nil {
			return errors.Join(err, fmt.Errorf("end the protection of layers: %w", e))
		}
		a.leased = false
	}
	if err == nil {
		err = failpoint.Hit(leaseEnded)
	}
	if collect {
		err = errors.Join(err, a.s.collect(ctx))
	}
	return err
}
