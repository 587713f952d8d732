// Package again does what has failed and has to be done all the same, though
// nobody waits for it. It knows nothing of pods. What must outlive the daemon is
// in the records, where the next one finds it; here it is only memory.
package again

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// How long Run waits before it tries again what has failed.
const (
	againFirst = 500 * time.Millisecond
	againLast  = 30 * time.Second
)

const (
	// tryTimeout bounds one try, as operations are bounded that stay at one stage.
	tryTimeout = 4 * time.Minute
	// leaveTimeout is how long Run waits for what does not mind the end of ctx.
	leaveTimeout = 5 * time.Second
	// together is how many tries are made at once, and slow how long one may
	// take before it does not count any more: it may hang.
	together = 16
	slow     = time.Second
)

// List is what is tried until it succeeds or the daemon ends. Each thing is
// tried by itself: one that hangs delays no other. Make one with New and give it
// a goroutine with Run.
type List struct {
	mu      sync.Mutex
	todo    map[string]func(context.Context) error
	running map[string]struct{} // never tried twice at once
	wake    chan struct{}       // capacity 1
	room    chan struct{}       // capacity together
	tries   sync.WaitGroup
}

// New makes an empty list.
func New() *List {
	return &List{
		todo:    map[string]func(context.Context) error{},
		running: map[string]struct{}{},
		wake:    make(chan struct{}, 1),
		room:    make(chan struct{}, together),
	}
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

// Run tries everything again until ctx ends. It then waits for the tries that
// are under way, but not for ever.
func (l *List) Run(ctx context.Context, log *slog.Logger) error {
	timer := time.NewTimer(againLast)
	defer timer.Stop()
	pause := againFirst
	for {
		select {
		case <-ctx.Done():
			l.leave(log)
			return nil
		case <-l.wake:
			pause = againFirst
			timer.Reset(pause)
			continue
		case <-timer.C:
		}
		if l.begin(ctx, log) {
			pause = min(2*pause, againLast)
			timer.Reset(pause)
		}
	}
}

// begin tries everything that is not being tried, and says whether there was
// anything. It does not wait.
func (l *List) begin(ctx context.Context, log *slog.Logger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, do := range l.todo {
		if _, ok := l.running[name]; ok {
			continue
		}
		delete(l.todo, name)
		l.running[name] = struct{}{}
		l.tries.Go(func() { l.try(ctx, log, name, do) })
	}
	return len(l.todo)+len(l.running) > 0
}

// try does one thing once, and keeps it for the next time if that fails.
func (l *List) try(ctx context.Context, log *slog.Logger, name string, do func(context.Context) error) {
	err := l.do(ctx, do)
	if err != nil && ctx.Err() == nil {
		log.Warn("what has failed before fails again, and is tried later", "what", name, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, name)
	if err != nil && l.todo[name] == nil { // nobody has noted it anew
		l.todo[name] = do
	}
}

func (l *List) do(ctx context.Context, do func(context.Context) error) error {
	select {
	case l.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	leave := sync.OnceFunc(func() { <-l.room })
	defer leave()
	late := time.AfterFunc(slow, leave)
	defer late.Stop()
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return do(ctx)
}

// leave waits for what is being tried, whose context has ended.
func (l *List) leave(log *slog.Logger) {
	done := make(chan struct{})
	go func() { // ends with the last try, or with the process
		defer close(done)
		l.tries.Wait()
	}()
	limit := time.NewTimer(leaveTimeout)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		log.Error("what was tried again is left behind; the next start sees to what it has half done", "what", l.underWay())
	}
}

// underWay names what is being tried.
func (l *List) underWay() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name := range l.running {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
