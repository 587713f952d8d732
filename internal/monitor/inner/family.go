package inner

import (
	"errors"
	"fmt"
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
// session, whose number cannot be another's as long as one of them lives. One
// that has left the session and whose parent has ended is not found; the
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
		found, err := family(who, cgroups)
		if err != nil {
			return fmt.Errorf("signal process %s with its descendants: %w", p.id, err)
		}
		fresh := false
		for _, member := range found {
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

// family finds the living processes that belong to the one that who names.
func family(who record.Ident, cgroups string) ([]record.Ident, error) {
	all, err := linux.Processes()
	if err != nil {
		return nil, err
	}
	member := map[int]bool{}
	lives := false
	for _, s := range all {
		if s.PID == who.PID && s.Start == who.Start {
			member[s.PID], lives = true, true
		}
	}
	for _, s := range all {
		// Once the leader has ended its number could be reused, so the rest of
		// the session must be where the leader was.
		if s.Session == who.PID && s.Start >= who.Start && (lives || cgroup.Of(s.PID) == cgroups) {
			member[s.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if !member[s.PID] && member[s.PPID] {
				member[s.PID], grown = true, true
			}
		}
	}
	var found []record.Ident
	for _, s := range all {
		if member[s.PID] && s.State != 'Z' {
			found = append(found, record.Ident{PID: s.PID, Start: s.Start})
		}
	}
	return found, nil
}
