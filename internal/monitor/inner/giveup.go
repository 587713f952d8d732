package inner

import (
	"context"
	"fmt"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
)

var givenUp = failpoint.Register("monitor.give-up.marked")

// handleGiveUp ends a start that is under way: its runtime command is killed, and
// the request for it fails. It does not wait for that. A monitor that takes over
// meanwhile does not know of it, and has to be asked again.
func handleGiveUp(_ context.Context, in *Inner, c *call) (any, []int, error) {
	p, err := named(in, c)
	if err != nil {
		return nil, nil, err
	}
	if err := p.giveUp(); err != nil {
		return nil, nil, err
	}
	return nil, nil, failpoint.Hit(givenUp)
}

func (p *process) giveUp() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rec.State != monitorv1.Starting {
		return fmt.Errorf("give up the start of process %s: it is %s: %w", p.id, p.rec.State, errdefs.ErrPrecondition)
	}
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	return nil
}

// wanted returns an error if the start was given up. What has become Running since
// is not wanted either.
func (p *process) wanted() error {
	select {
	case <-p.quit:
		return fmt.Errorf("it was given up: %w", errdefs.ErrPrecondition)
	default:
		return nil
	}
}
