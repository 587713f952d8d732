// Package again does what has failed and has to be done all the same, though
// nobody waits for it. It knows nothing of pods. What must outlive the daemon is
// in the records, where the next one finds it; here it is only memory.
package again

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// How long Run waits before it tries again what has failed.
const (
	againFirst = 500 * time.Millisecond
	againLast  = 30 * time.Second
)

// List is what is tried until it succeeds or the daemon ends. Make one with New
// and give it a goroutine with Run.
type List struct {
	mu   sync.Mutex
	todo map[string]func(context.Context) error
	wake chan struct{} // capacity 1
}

// New makes an empty list.
func New() *List {
	return &List{todo: map[string]func(context.Context) error{}, wake: make(chan struct{}, 1)}
}

// Add notes something to do, in place of what had this name.
func (l *List) Add(name string, do func(context.Context) error) {
	l.mu.Lock()
	l.todo[name] = do
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run tries everything again until ctx ends.
func (l *List) Run(ctx context.Context, log *slog.Logger) error {
	timer := time.NewTimer(againLast)
	defer timer.Stop()
	pause := againFirst
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
			pause = againFirst
			timer.Reset(pause)
			continue
		case <-timer.C:
		}
		if left := l.try(ctx, log); left > 0 {
			pause = min(2*pause, againLast)
			timer.Reset(pause)
		}
	}
}

// try does everything once and returns how much is left.
func (l *List) try(ctx context.Context, log *slog.Logger) int {
	l.mu.Lock()
	todo := maps.Clone(l.todo)
	clear(l.todo)
	l.mu.Unlock()
	left := 0
	for name, do := range todo {
		err := do(ctx)
		if err == nil {
			continue
		}
		log.Warn("what has failed before fails again, and is tried later", "what", name, "error", err)
		left++
		l.mu.Lock()
		if l.todo[name] == nil { // nobody has noted it anew
			l.todo[name] = do
		}
		l.mu.Unlock()
	}
	return left
}
