package cgroup

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Ledger tells which containers have lost a process because memory ran out.
//
// The count is in the container's own cgroup. systemd removes that as soon as
// the last process has left, which is before the parent of the process is told
// of its end. So the ledger also keeps the books of the cgroup above, which on
// cgroup v2 counts what happens below it and outlives the container: what its
// count has grown by, less what the others below are known for, is what those
// have lost whose cgroup is gone. The kernel counts before it kills, so nobody
// is asked about too early.
//
// Where several are gone at once, those whose count cannot have changed are
// told apart by a watch on it, and the others by how they ended.
//
// On cgroup v1 no cgroup counts what happens below it, and the books are those
// of the whole host, whose count has kills of others too. So one is put down to
// a container whose cgroup is gone only if it ended by SIGKILL and memory is
// known to have run out there or above (see signals), or nobody was there to
// hear of it. What stays unknown: that the host's memory ran out, or that of two
// cgroups one above the other at the same moment, and that a child was killed
// where the container ended in another way. What is wrong: somebody's SIGKILL
// is taken for the kernel's if memory had run out above, or nobody was there to
// hear that it had not, and it has cost a process that is on no books.
type Ledger struct {
	memory  hierarchy
	host    string // the file with the host's count
	off     bool   // there is no memory controller: nothing is ever known
	watches *watches

	mu       sync.Mutex
	members  map[string]*member
	families map[string]*family
	lost     []string // ids of those that have lost a process and are off the books
}

// family is a cgroup with containers in it; on cgroup v1, the host.
type family struct {
	dir string
	// elsewhere is how many kills the cgroup had counted that are none of the
	// present members'.
	elsewhere int
	counted   int // what it had counted when that was found, or never
	members   map[*member]bool
}

const never = -1

// member is a container.
type member struct {
	id, dir string
	family  *family
	seen    int  // its kills when they were last read
	watched bool // seen is right unless stirred, or on v1 unless there were signals
	stirred bool
	signals *signals // of v1
}

// Verdict is what the ledger found out about a container that has ended.
type Verdict struct {
	OOMKilled bool
	// Elsewhere is the new value for the containers Others; see Join.
	Elsewhere int
	Others    []string
}

// NewLedger looks for the hierarchy with the memory controller. On a host
// without one, no container was ever killed for want of memory.
func NewLedger() (*Ledger, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	h, err := memory(all)
	l := newLedger(h)
	l.off = err != nil
	return l, nil
}

func newLedger(h hierarchy) *Ledger {
	return &Ledger{memory: h, host: "/proc/vmstat", watches: newWatches(), members: map[string]*member{}, families: map[string]*family{}}
}

// PathIn returns where in the memory hierarchy a process is, given its
// /proc/PID/cgroup; empty if that is not known, or the root.
func (l *Ledger) PathIn(cgroups string) string {
	path := l.memory.of(cgroups)
	// One that was ending when it was looked at shows the root, or a cgroup
	// that is gone.
	if path == "/" || strings.HasSuffix(path, " (deleted)") {
		return ""
	}
	return path
}

// Join puts a container on the books before it is started. path is its cgroup
// in the memory hierarchy, which need not exist; without one nothing is known
// of it. The result is to be kept for Rejoin.
func (l *Ledger) Join(id, path string) (elsewhere int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.add(id, path)
	if m == nil {
		return 0
	}
	f := m.family
	if f.counted != never {
		if total, err := l.total(f); err == nil && total == f.counted {
			return f.elsewhere
		}
	}
	total, gone, ok := l.tally(f)
	// Others may use the cgroup above too; what happened to them until now is
	// of no more interest. While somebody's count is open it stays as it is.
	if ok && !slices.ContainsFunc(gone, func(g *member) bool { return g != m }) {
		// Less than before means that a neighbour is losing a process at this
		// moment: the kernel counts it below first.
		f.elsewhere = max(f.elsewhere, total-f.known())
		f.counted = total
	}
	return f.elsewhere
}

// Rejoin puts a container back on the books of a new process; elsewhere is
// what was kept for it.
func (l *Ledger) Rejoin(id, path string, elsewhere int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.add(id, path)
	if m == nil {
		return
	}
	// They differ if a change was cut off between two of them; then the one
	// that caused it is among them, with its count still open.
	if len(m.family.members) == 1 || elsewhere < m.family.elsewhere {
		m.family.elsewhere, m.family.counted = elsewhere, never
	}
}

func (l *Ledger) add(id, path string) *member {
	if l.off || path == "" || path == "/" {
		return nil
	}
	l.remove(l.members[id]) // of a start that was tried before
	dir := l.memory.dir(path)
	above := l.memory.mountPoint
	if l.memory.unified {
		above = filepath.Dir(dir)
	}
	f := l.families[above]
	if f == nil {
		f = &family{dir: above, counted: never, members: map[*member]bool{}}
		l.families[above] = f
	}
	m := &member{id: id, dir: dir, family: f}
	f.members[m] = true
	l.members[id] = m
	return m
}

// Watch is called once the container's cgroup is there, and whenever that may
// be so. cgroups is the /proc/PID/cgroup of its first process, as far as that is
// known.
func (l *Ledger) Watch(id, cgroups string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.members[id]; m != nil {
		l.descend(m, cgroups)
		l.watch(m)
	}
}

// descend goes to where the process is, if that is below the container's cgroup:
// crun makes one more in the scope that systemd has made. On cgroup v1 a kill
// counts there and nowhere above.
func (l *Ledger) descend(m *member, cgroups string) {
	if l.memory.unified {
		return
	}
	dir := l.memory.dir(l.PathIn(cgroups))
	if strings.HasPrefix(dir, m.dir+"/") {
		m.dir = dir
		m.signals.close() // of what is above nothing is heard below
		m.signals = nil
	}
}

func (l *Ledger) watch(m *member) {
	switch {
	case l.memory.unified:
		m.watched = l.watches.add(m.dir, m.id) == nil
		m.stirred = false
	case m.signals == nil: // what has come counts on
		var err error
		m.signals, err = listen(m.dir)
		m.watched = err == nil
	}
	// Read after the watch is set: from now on it has changed or been announced.
	n, err := l.memory.kills(m.dir)
	if err != nil {
		m.watched = false
		return
	}
	m.seen = n
}

// Leave takes a container off the books that did not start.
func (l *Ledger) Leave(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(l.members[id])
}

func (l *Ledger) remove(m *member) {
	if m == nil {
		return
	}
	l.watches.remove(m.id)
	m.signals.close()
	if m.seen > 0 {
		m.family.counted = never
	}
	delete(l.members, m.id)
	delete(m.family.members, m)
	if len(m.family.members) == 0 {
		delete(l.families, m.family.dir)
	}
}

// Settle tells whether a container that has ended had lost a process because
// memory ran out, and takes it off the books. killed says that it ended by
// SIGKILL, or as if by it. It is called as soon as the end is known.
func (l *Ledger) Settle(id string, killed bool) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.members[id]
	if m == nil {
		return Verdict{}
	}
	if n, err := l.memory.kills(m.dir); err == nil {
		m.seen = n
	} else {
		m.seen += l.missing(m, killed)
	}
	l.remove(m)
	v := Verdict{OOMKilled: m.seen > 0}
	if m.seen > 0 {
		l.lost = append(l.lost[max(0, len(l.lost)+1-remembered):], id)
		m.family.elsewhere += m.seen
		v.Elsewhere = m.family.elsewhere
		for other := range maps.Keys(m.family.members) {
			v.Others = append(v.Others, other.id)
		}
	}
	return v
}

// remembered is how many of those that have lost a process are known after they
// are off the books.
const remembered = 256

// Killed tells whether a container has lost a process because memory ran out, if it
// is on the books or was lately. It says no where the count has gone with the
// cgroup and nobody has settled it yet.
func (l *Ledger) Killed(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.members[id]
	if m == nil {
		return slices.Contains(l.lost, id)
	}
	if n, err := l.memory.kills(m.dir); err == nil {
		m.seen = n
	}
	return m.seen > 0
}

// known is the sum of what is known of the members.
func (f *family) known() (sum int) {
	for m := range f.members {
		sum += m.seen
	}
	return sum
}

// tries bounds how often counts are read that change in the meantime.
const tries = 200

// tally reads the counts of a family as they were at one moment, and lists the
// members that have none any more, or not yet. Where the cgroup above is not
// there yet either, there is nothing to tally.
func (l *Ledger) tally(f *family) (total int, gone []*member, ok bool) {
	for range tries {
		var err error
		gone = l.look(f)
		known := f.known()
		if total, err = l.total(f); err != nil {
			return 0, nil, false
		}
		again := l.look(f)
		if known == f.known() && len(again) == len(gone) {
			return total, gone, true
		}
	}
	return 0, nil, false
}

// total reads the count of a family.
func (l *Ledger) total(f *family) (int, error) {
	if l.memory.unified {
		return l.memory.kills(f.dir)
	}
	return killsIn(l.host)
}

// look reads the members' own counts.
func (l *Ledger) look(f *family) (gone []*member) {
	for m := range f.members {
		n, err := l.memory.kills(m.dir)
		if err != nil {
			gone = append(gone, m)
			continue
		}
		m.seen = n
	}
	return gone
}
