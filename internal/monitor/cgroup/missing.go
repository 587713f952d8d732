package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// stirLimit bounds the wait for the kernel to announce a change that has
// happened, or the removal of a cgroup v1; it does both from a queue.
const stirLimit = time.Second

// missing is how many kills of the family's are to be put down to m, whose own
// count is gone. killed is as in Settle.
func (l *Ledger) missing(m *member, killed bool) int {
	if !l.memory.unified {
		return l.missingOfVersion1(m, killed)
	}
	f := m.family
	for deadline := time.Now().Add(stirLimit); ; {
		total, gone, ok := l.tally(f)
		open := total - f.elsewhere - f.known()
		if !ok || open <= 0 {
			return 0
		}
		l.markStirred()
		suspects := slices.DeleteFunc(slices.Clone(gone), func(g *member) bool { return g.watched && !g.stirred })
		if len(suspects) == 0 && len(gone) > 1 && time.Now().Before(deadline) {
			// It was one of them, and which is about to be announced.
			l.mu.Unlock()
			await(l.watches.fd, deadline)
			l.mu.Lock()
			continue
		}
		if len(suspects) == 0 {
			suspects = gone
		}
		switch {
		case !slices.Contains(suspects, m), !killed && f.shared():
			return 0
		case len(suspects) == 1:
			return open
		case killed:
			return m.share(open, len(suspects)-1)
		}
		return 0 // the others may have been killed, and this one was not
	}
}

// missingOfVersion1 is missing where only the host's count is left. A single
// signal may be of want of memory or of the removal, which always comes in the
// end: only a second tells.
func (l *Ledger) missingOfVersion1(m *member, killed bool) int {
	if !killed {
		return 0
	}
	for deadline := time.Now().Add(stirLimit); ; {
		come := 0
		if m.watched {
			if come = m.signals.count(); come == 0 {
				return 0
			}
		}
		total, gone, ok := l.tally(m.family)
		open := total - m.family.elsewhere - m.family.known()
		switch {
		case !ok || open <= 0:
			return 0
		case !m.watched || come > 1:
			return m.share(open, len(gone)-1)
		case time.Now().After(deadline):
			return 0
		}
		fd := m.signals.fd
		l.mu.Unlock()
		await(fd, deadline)
		l.mu.Lock()
	}
}

// share is how many of the kills that are nobody's yet m gets while others may
// want theirs. One that is known to have lost a process can do without.
func (m *member) share(open, others int) int {
	least := 1
	if m.seen > 0 {
		least = 0
	}
	return max(least, open-others)
}

// shared says whether others than members use the cgroup, so that what it
// counts may be theirs.
func (f *family) shared() bool {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		if !e.IsDir() {
			return false
		}
		for m := range f.members {
			if filepath.Base(m.dir) == e.Name() {
				return false
			}
		}
		return true
	})
}

// markStirred notes whose counts have been announced to have changed.
func (l *Ledger) markStirred() {
	ids, all := l.watches.drain()
	for id, m := range l.members {
		if m.watched && (all || ids[id]) {
			m.stirred = true
		}
	}
}
