// Package pulse tells whether a loop that mostly waits goes on, or is held up, and so of a
// log.
package pulse

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
)

// How often a loop shows that it goes on, and after what time without that it is stuck.
// The second is a kubelet's.
const (
	Every      = 10 * time.Second
	StuckAfter = 2 * time.Minute
)

// Pulse is that of one loop. The zero value is of one that has not begun.
type Pulse struct {
	last atomic.Pointer[time.Time] // whole: without its monotonic part, a clock that is set would look like a stuck loop
}

// Beat is called when the loop begins.
func (p *Pulse) Beat() { p.last.Store(new(time.Now())) }

// Await waits for something to do, and shows meanwhile that nothing holds the loop up.
func (p *Pulse) Await(ctx context.Context, poked <-chan struct{}) error {
	beats := time.NewTicker(Every)
	defer beats.Stop()
	for {
		p.Beat()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poked:
			return nil
		case <-beats.C:
		}
	}
}

// Healthy says that the loop goes on, or has not begun.
func (p *Pulse) Healthy() error {
	last := p.last.Load()
	if last == nil {
		return nil
	}
	if since := time.Since(*last); since > StuckAfter {
		return fmt.Errorf("it has been at one thing for %s: %w", since.Round(time.Second), errdefs.ErrUnavailable)
	}
	return nil
}
