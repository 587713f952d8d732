package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// stirLimit bounds the wait for the kernel to announce a change that has
// happened, which it does from a queue.
const stirLimit = time.Second

// missing is how many kills of the family's are to be put down to m, whose own
// count is gone. killed is as in Settle.
func (l *Ledger) missing(m *member, killed bool) int {
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
			l.watches.await(deadline)
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
			return max(1, open-(len(suspects)-1))
		}
		return 0 // the others may have been killed, and this one was not
	}
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
