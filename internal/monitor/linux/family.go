package linux

import (
	"errors"
	"syscall"
)

// Leader is a process, and what those have in common with it that belong to it.
type Leader struct {
	PID   int // 0 if only the mark is known
	Start uint64
	// Mark, unless it is 0, is the mark of the process and of all that it has
	// started.
	Mark uint64
	// Same says whether a process is where the leader was, which tells a session
	// from a later one of the same number once the leader has ended.
	Same func(pid int) bool
}

// Family finds the living processes that belong to the leader: itself, its
// descendants, its session, whose number cannot be another's as long as one of
// them lives, and whatever has its mark where it was.
func (l Leader) Family() ([]Stat, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	member := map[int]bool{}
	lives := false
	for _, s := range all {
		if s.PID == l.PID && s.Start == l.Start {
			member[s.PID], lives = true, true
		}
	}
	for _, s := range all {
		if s.Start < l.Start || member[s.PID] {
			continue
		}
		session := l.PID != 0 && s.Session == l.PID && (lives || l.Same(s.PID))
		if session || l.Mark != 0 && Mark(s.PID) == l.Mark && l.Same(s.PID) {
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
	var found []Stat
	for _, s := range all {
		if member[s.PID] && s.State != 'Z' {
			found = append(found, s)
		}
	}
	return found, nil
}

// passes is how often the processes are looked through for those that a
// process started: some may be born while others are killed.
const passes = 5

// Signal sends a signal to each process that Family finds, and returns to how
// many.
func (l Leader) Signal(sig syscall.Signal) (int, error) {
	type ident struct {
		pid   int
		start uint64
	}
	sent := map[ident]bool{}
	for range passes {
		found, err := l.Family()
		if err != nil {
			return len(sent), err
		}
		fresh := false
		for _, f := range found {
			member := ident{f.PID, f.Start}
			if sent[member] {
				continue
			}
			sent[member], fresh = true, true
			if err := f.Signal(sig); err != nil {
				return len(sent), err
			}
		}
		if !fresh {
			break
		}
	}
	return len(sent), nil
}

// Signal sends a signal to the process. One that has ended is no error.
func (s Stat) Signal(sig syscall.Signal) error {
	f, err := OpenProcess(s.PID, s.Start)
	if err != nil {
		return nil
	}
	err = SignalProcess(f, sig)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, syscall.EPERM) || err == nil {
		return err
	}
	return nil
}
