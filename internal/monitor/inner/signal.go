package inner

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/cgroup"
	"fairlead.run/internal/monitor/linux"
)

// signalAll sends a signal to the process, its descendants, all of its session
// and, if it has a mark, whatever it has started. Without one, a process that has
// left the session and whose parent has ended is not found.
func (p *process) signalAll(sig syscall.Signal) error {
	p.mu.Lock()
	who, cgroups, state, spec := p.rec.Main, p.rec.Cgroups, p.rec.State, p.rec.Spec
	p.mu.Unlock()
	if state == monitorv1.Starting {
		return fmt.Errorf("signal process %s: it has not started: %w", p.id, errdefs.ErrPrecondition)
	}
	same := func(pid int) bool { return spec.Anywhere || cgroup.Of(pid) == cgroups }
	sent, err := linux.Leader{PID: who.PID, Start: who.Start, Mark: spec.Mark, Same: same}.Signal(sig)
	if err != nil {
		return fmt.Errorf("signal process %s with its descendants: %w", p.id, err)
	}
	if sent == 0 {
		return fmt.Errorf("signal process %s with its descendants: all have ended: %w", p.id, errdefs.ErrNotFound)
	}
	return nil
}

// signal sends a signal to the process, and with all to everything that it
// started, as far as that can be told.
func (p *process) signal(sig syscall.Signal, all bool) error {
	if all {
		return p.signalAll(sig)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd == nil || p.rec.State != monitorv1.Running {
		return fmt.Errorf("signal process %s: it is %s: %w", p.id, p.rec.State, errdefs.ErrNotFound)
	}
	err := linux.SignalProcess(p.pidfd, sig)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %s: it has ended: %w", p.id, errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("signal process %s: %w", p.id, err)
	}
	return nil
}
