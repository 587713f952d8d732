package lifecycle

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// How long the core waits before it tries again what has failed.
const (
	againFirst = 500 * time.Millisecond
	againLast  = 30 * time.Second
)

// later is what has failed and has to be done all the same, though nobody waits
// for it: the end of a container that could not be recorded, or a pod that was
// not made and could not be taken back. It is tried again until it succeeds or
// the daemon ends; the next one finds in the records what is still to be done.
type later struct {
	mu   sync.Mutex
	todo map[string]func(context.Context) error
	wake chan struct{} // capacity 1
}

func newLater() *later {
	return &later{todo: map[string]func(context.Context) error{}, wake: make(chan struct{}, 1)}
}

// add notes something to do, in place of what had this name.
func (l *later) add(name string, do func(context.Context) error) {
	l.mu.Lock()
	l.todo[name] = do
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run tries everything again until ctx ends.
func (l *later) Run(ctx context.Context, log *slog.Logger) error {
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
func (l *later) try(ctx context.Context, log *slog.Logger) int {
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
