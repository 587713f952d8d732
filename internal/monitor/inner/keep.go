package inner

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/linux"
)

// The place at which a test kills the monitor as it gets a terminal back.
var terminalGiven = failpoint.Register("monitor.give.taken")

func handleKeep(_ context.Context, in *Inner, c *call) (any, []int, error) {
	p, err := named(in, c)
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.stdio("keep the output"); err != nil {
		return nil, nil, err
	}
	started, fds := p.keep()
	return started, fds, nil
}

// keep returns copies of what a caller holds on to, which become the caller's.
func (p *process) keep() (monitorv1.Started, []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	started := p.rec.Started()
	var fds []int
	if p.pidfd != nil && p.rec.State == monitorv1.Running {
		if fd, err := linux.Duplicate(p.pidfd); err == nil {
			started.Kept, fds = append(started.Kept, monitorv1.KeptProcess), append(fds, fd)
		}
	}
	what, copies := p.io.Copies()
	started.Kept = append(started.Kept, what...)
	return started, append(fds, copies...)
}

// handleGive takes back a terminal. Exits are told after the output, so that of
// a container that has ended is waited for.
func handleGive(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	p, err := named(in, c)
	if err != nil {
		return nil, nil, err
	}
	io, err := p.stdio("take the terminal")
	if err != nil {
		return nil, nil, err
	}
	fds := c.takeFDs()
	if len(fds) != 1 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, nil, fmt.Errorf("take the terminal of container %s: %d descriptors came: %w", p.id, len(fds), errdefs.ErrInvalidArgument)
	}
	if err := io.Give(in.pool, fds[0]); err != nil {
		return nil, nil, err
	}
	_ = failpoint.Hit(terminalGiven)
	if p.hasEnded() {
		io.Drain(ctx, drainLimit)
	}
	return nil, nil, nil
}
