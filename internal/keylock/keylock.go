// Package keylock gives each key a lock of its own, so that two operations on
// one pod take turns and operations on different pods never wait for each
// other.
//
// Waiters get the lock in the order in which they asked, and stop waiting when
// their context ends. It is not a lock between processes: one daemon owns the
// state directory, and that is guarded by a file lock elsewhere.
package keylock

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Locks is a set of locks, one for each key in use. The zero value is ready
// for use. A key that nobody holds or waits for takes no memory.
type Locks[K comparable] struct {
	mu     sync.Mutex
	queues map[K]*queue
}

// queue exists for as long as its key is held.
type queue struct {
	waiters []chan struct{} // oldest first; closed to hand the lock over
}

// Lock waits until the caller alone holds key and returns what gives it back;
// calling that more than once is harmless. If ctx ends first, the error wraps
// the context's cause and nothing is held; a context that has already ended
// gets no lock, not even a free one.
func (l *Locks[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("wait for %v: %w", key, context.Cause(ctx))
	}
	turn := l.join(key)
	if turn == nil {
		return l.unlocker(key), nil
	}
	select {
	case <-turn:
		return l.unlocker(key), nil
	case <-ctx.Done():
		l.leave(key, turn)
		return nil, fmt.Errorf("wait for %v, which is busy with another operation: %w", key, context.Cause(ctx))
	}
}

// join takes a free key and returns nil, or queues for a busy one.
func (l *Locks[K]) join(key K) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, busy := l.queues[key]
	if !busy {
		if l.queues == nil {
			l.queues = make(map[K]*queue)
		}
		l.queues[key] = &queue{}
		return nil
	}
	turn := make(chan struct{})
	q.waiters = append(q.waiters, turn)
	return turn
}

// leave gives up waiting. The lock may have been handed over in the meantime;
// then it goes to the next one.
func (l *Locks[K]) leave(key K, turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[key]
	if i := slices.Index(q.waiters, turn); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
		return
	}
	l.pass(key)
}

func (l *Locks[K]) unlocker(key K) func() {
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pass(key)
	})
}

// pass hands the lock to the oldest waiter, or drops the key. l.mu is held.
func (l *Locks[K]) pass(key K) {
	q := l.queues[key]
	if len(q.waiters) == 0 {
		delete(l.queues, key)
		return
	}
	next := q.waiters[0]
	q.waiters = slices.Delete(q.waiters, 0, 1)
	close(next)
}
