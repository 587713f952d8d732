package keeper

import "sync"

// Leases are the ids of leases that are in use. The zero value is none.
type Leases struct {
	mu  sync.Mutex
	ids map[string]bool
}

// Add notes a lease, before it is made.
func (l *Leases) Add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ids == nil {
		l.ids = map[string]bool{}
	}
	l.ids[id] = true
}

// Drop forgets a lease, after it is gone.
func (l *Leases) Drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ids, id)
}

// Has says whether the lease is in use.
func (l *Leases) Has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[id]
}

// Any says whether any lease is in use.
func (l *Leases) Any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids) > 0
}
