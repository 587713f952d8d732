package nodes

import (
	"context"

	"fairlead.run/internal/keylock"
)

// Passes are the looks at the nodes of pools that go on now. The zero value is ready
// for use.
//
// A look marks nodes by what it read when it began. Who lets go of a pool or of a
// runtime waits for it, and asks the API server for marked nodes afterwards: a look that
// begins later sees the deletion, as both read it from one cache.
type Passes struct{ pools keylock.Locks[string] }

func (p *Passes) begin(ctx context.Context, pool string) (end func(), err error) {
	return p.pools.Lock(ctx, pool)
}

// Wait returns when no look at a pool's nodes goes on that had begun before.
func (p *Passes) Wait(ctx context.Context, pool string) error {
	end, err := p.pools.Lock(ctx, pool)
	if err == nil {
		end()
	}
	return err
}
