package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
)

// How often the agent shows that it goes on, and after what time without that it is stuck.
// The second is a kubelet's.
const (
	pulseEvery = 10 * time.Second
	stuckAfter = 2 * time.Minute
)

// pulse is when the agent was last seen to go on; zero before it runs.
type pulse struct{ last atomic.Int64 }

func (p *pulse) beat() { p.last.Store(time.Now().UnixNano()) }

// until waits for something to do, and shows meanwhile that nothing holds the agent up.
func (p *pulse) until(ctx context.Context, poked <-chan struct{}) error {
	beats := time.NewTicker(pulseEvery)
	defer beats.Stop()
	for {
		p.beat()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poked:
			return nil
		case <-beats.C:
		}
	}
}

// Healthy says that the agent goes on giving pods to their workers. It does not while a
// runtime has not said yet which pods it has.
func (a *Agent) Healthy(context.Context) error {
	last := a.pulse.last.Load()
	if last == 0 {
		return nil // it has not begun
	}
	if since := time.Since(time.Unix(0, last)); since > stuckAfter {
		return fmt.Errorf("the agent has not looked for new pods for %s: %w", since.Round(time.Second), errdefs.ErrUnavailable)
	}
	return nil
}
