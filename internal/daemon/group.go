package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.run/internal/errdefs"
)

// endLimit is how long the parts of a daemon may take to end. Each has bounds
// of its own that are shorter; this one is for a part that hangs in the kernel,
// with which the daemon would wait for ever.
const endLimit = 30 * time.Second

// group runs the parts of a daemon until one fails or the context ends.
type group struct {
	eg *errgroup.Group

	mu      sync.Mutex
	running map[string]bool
}

// newGroup returns a group and the context for its parts.
func newGroup(ctx context.Context) (*group, context.Context) {
	eg, ctx := errgroup.WithContext(ctx)
	return &group{eg: eg, running: map[string]bool{}}, ctx
}

// run starts a part.
func (g *group) run(name string, part func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[name] = true
	g.eg.Go(func() error {
		err := part()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.running, name)
		return err
	})
}

// wait returns when all parts have ended, or limit after ctx, the group's, has.
func (g *group) wait(ctx context.Context, limit time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- g.eg.Wait() }() // ends with the last part, or with the process
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Errorf("end the daemon: %s did not end within %s and is left behind: %w",
		strings.Join(slices.Sorted(maps.Keys(g.running)), ", "), limit, errdefs.ErrDeadline)
}

// quiet drops the error of a part that ended because it was told to.
func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
