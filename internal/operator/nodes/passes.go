package nodes

import (
	"context"
	"maps"
	"slices"
	"sync"

	"fairlead.run/internal/keylock"
)

// Passes are the looks at the nodes of pools that go on now. The zero value is ready
// for use.
//
// A look marks nodes by what it read when it began. Who lets go of a pool or of a
// runtime waits for it, and asks the API server for marked nodes afterwards: a look that
// begins later sees the deletion, as both read it from one cache.
type Passes struct {
	pools keylock.Locks[string]

	mu     sync.Mutex
	passed map[string]map[string]string // nodes that the last look at a pool passed over, with why
}

func (p *Passes) note(pool string, passed map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.passed == nil {
		p.passed = map[string]map[string]string{}
	}
	p.passed[pool] = passed
}

// Passed are the nodes of a pool for which nobody waits, for people. It is as the last look
// at the pool found it.
func (p *Passes) Passed(pool string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, node := range slices.Sorted(maps.Keys(p.passed[pool])) {
		out = append(out, node+" ("+p.passed[pool][node]+")")
	}
	return out
}

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
