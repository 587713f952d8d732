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
	"fairlead.run/internal/monitor/record"
)

// passes is how often the processes are looked through for those that a
// process started: some may be born while others are killed.
const passes = 5

// signalAll sends a signal to the process, its descendants and all of its
// session. One that has left the session and whose parent has ended is not found; the
// container's cgroup is what ends those.
func (p *process) signalAll(sig syscall.Signal) error {
	p.mu.Lock()
	who, cgroups, state := p.rec.Main, p.rec.Cgroups, p.rec.State
	p.mu.Unlock()
	if state == monitorv1.Starting {
		return fmt.Errorf("signal process %s: it has not started: %w", p.id, errdefs.ErrPrecondition)
	}
	sent := map[record.Ident]bool{}
	for range passes {
		found, err := linux.Family(who.PID, who.Start, func(pid int) bool { return cgroup.Of(pid) == cgroups })
		if err != nil {
			return fmt.Errorf("signal process %s with its descendants: %w", p.id, err)
		}
		fresh := false
		for _, f := range found {
			member := record.Ident{PID: f.PID, Start: f.Start}
			if sent[member] {
				continue
			}
			sent[member], fresh = true, true
			if err := signalOne(member, sig); err != nil {
				return fmt.Errorf("signal process %s with its descendants: %w", p.id, err)
			}
		}
		if !fresh {
			break
		}
	}
	if len(sent) == 0 {
		return fmt.Errorf("signal process %s with its descendants: all have ended: %w", p.id, errdefs.ErrNotFound)
	}
	return nil
}

func signalOne(who record.Ident, sig syscall.Signal) error {
	f, err := linux.OpenProcess(who.PID, who.Start)
	if err != nil {
		return nil // it has ended
	}
	err = linux.SignalProcess(f, sig)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, syscall.EPERM) || err == nil {
		return err
	}
	return nil // it has ended
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
