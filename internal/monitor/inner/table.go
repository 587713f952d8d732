package inner

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
)

// table knows every process by id and by pid. Its lock is held for memory and
// tmpfs only.
type table struct {
	records *record.Dir
	log     *slog.Logger

	mu       sync.Mutex
	procs    map[string]*process
	byPID    map[int]*process
	commands map[int]chan linux.Ended // runtime commands under way
	// starts counts operations that will ask for a pid which may have ended
	// already; only while there are any are unknown exits kept.
	starts  int
	unknown []linux.Ended
	refused bool
	seq     uint64
	change  chan struct{} // closed and replaced when an exit is published
	calm    chan struct{} // closed and replaced when starts becomes zero
}

func newTable(records *record.Dir, log *slog.Logger) *table {
	return &table{
		records:  records,
		log:      log,
		procs:    map[string]*process{},
		byPID:    map[int]*process{},
		commands: map[int]chan linux.Ended{},
		change:   make(chan struct{}),
		calm:     make(chan struct{}),
	}
}

// childEnded takes note of a child that has ended and is not reaped yet.
func (t *table) childEnded(e linux.Ended) {
	t.mu.Lock()
	if done, ok := t.commands[e.PID]; ok {
		delete(t.commands, e.PID)
		t.mu.Unlock()
		done <- e
		return
	}
	if p, ok := t.byPID[e.PID]; ok && (e.Start == 0 || p.main().Start == e.Start) {
		t.mu.Unlock()
		p.end(e, false)
		return
	}
	defer t.mu.Unlock()
	if t.starts == 0 {
		return
	}
	t.unknown = append(t.unknown, e)
	if err := t.records.SaveExit(e); err != nil {
		t.log.Error("exit not recorded", "pid", e.PID, "error", err)
	}
}

// reserve returns the process of an id, and whether the caller just made it and
// has to start it.
func (t *table) reserve(id string, spec record.Spec) (*process, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused {
		return nil, false, fmt.Errorf("start process %s: %w: %w", id, errRest, errdefs.ErrUnavailable)
	}
	if p, ok := t.procs[id]; ok {
		repeated := spec.Token != "" && spec.Token == p.spec().Token
		if p.hasEnded() && !repeated {
			return nil, false, fmt.Errorf("start process %s: it has run and ended; forget it first: %w", id, errdefs.ErrAlreadyExists)
		}
		if kind := p.kind(); kind != spec.Kind {
			return nil, false, fmt.Errorf("start process %s: the id is that of a living %s: %w", id, kind, errdefs.ErrAlreadyExists)
		}
		return p, false, nil
	}
	if other := t.writerOf(spec.LogPath); other != "" {
		return nil, false, fmt.Errorf("start process %s: log %s is being written for container %s: %w", id, spec.LogPath, other, errdefs.ErrPrecondition)
	}
	p := newProcess(id, spec, t)
	t.procs[id] = p
	t.starts++
	return p, true, nil
}

func (t *table) writerOf(path string) string {
	if path == "" {
		return ""
	}
	for _, p := range t.procs {
		if p.logPath() == path && !p.hasEnded() {
			return p.id
		}
	}
	return ""
}

// add puts a process in that was read from its record.
func (t *table) add(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.procs[p.id] = p
	if p.rec.State == monitorv1.Running {
		t.byPID[p.rec.Main.PID] = p
	}
	if p.rec.Exit != nil {
		t.seq = max(t.seq, p.rec.Exit.Seq)
	}
	if p.rec.State == monitorv1.Starting {
		t.starts++
	}
}

// startDone ends what reserve began. Exits that nobody asked for are dropped
// with the last start.
func (t *table) startDone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starts--
	if t.starts > 0 {
		return
	}
	for _, e := range t.unknown {
		t.records.DropExit(record.Ident{PID: e.PID, Start: e.Start})
	}
	t.unknown = nil
	close(t.calm)
	t.calm = make(chan struct{})
}

// identify makes the pid the process's own, or returns how it has ended
// already.
func (t *table) identify(p *process, who record.Ident, since time.Time) (linux.Ended, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range slices.Backward(t.unknown) {
		if e.Of(who.PID, who.Start, since) {
			return e, true
		}
	}
	t.byPID[who.PID] = p
	return linux.Ended{}, false
}

// Expect registers a runtime command. It may have ended already.
func (t *table) Expect(who record.Ident, since time.Time) <-chan linux.Ended {
	done := make(chan linux.Ended, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range t.unknown {
		if e.Of(who.PID, who.Start, since) {
			t.unknown = slices.Delete(t.unknown, i, i+1)
			t.records.DropExit(record.Ident{PID: e.PID, Start: e.Start})
			done <- e
			return done
		}
	}
	t.commands[who.PID] = done
	return done
}

// Kill kills a runtime command with its process group, unless it has
// ended: its pid could be another's.
func (t *table) Kill(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.commands[pid]; ok {
		// The only error is that nobody is left in the group.
		_ = linux.KillGroup(pid)
	}
}

// remove forgets a process that never ran or was forgotten.
func (t *table) remove(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.procs[p.id] == p {
		delete(t.procs, p.id)
	}
	if pid := p.main().PID; t.byPID[pid] == p {
		delete(t.byPID, pid)
	}
}

// freePID lets the pid be another's.
func (t *table) freePID(p *process, pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPID[pid] == p {
		delete(t.byPID, pid)
	}
}

// publish gives the exit its number and shows it to callers, in that order, so
// that nobody sees a higher number first.
func (t *table) publish(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq = max(t.seq+1, uint64(time.Now().UnixNano()))
	p.publish(t.seq)
	_ = failpoint.Hit(numbered)
	close(t.change)
	t.change = make(chan struct{})
}

// exitsAfter returns the published exits above seq in order, and a channel that
// is closed when there are more.
func (t *table) exitsAfter(seq uint64) ([]monitorv1.Exit, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var exits []monitorv1.Exit
	for _, p := range t.procs {
		if e := p.publishedExit(); e != nil && e.Seq > seq {
			exits = append(exits, *e)
		}
	}
	slices.SortFunc(exits, func(a, b monitorv1.Exit) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	return exits, t.change
}

func (t *table) find(id string) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.procs[id]
	if !ok {
		return nil, fmt.Errorf("find process %s: the monitor does not know it: %w", id, errdefs.ErrNotFound)
	}
	return p, nil
}

func (t *table) all() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*process, 0, len(t.procs))
	for _, p := range t.procs {
		all = append(all, p)
	}
	return all
}

// refuse lets no more starts in. With idle it does so only if nothing lives,
// and otherwise returns how much does.
func (t *table) refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = true
}

func (t *table) refuseIfIdle() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	live := 0
	for _, p := range t.procs {
		if !p.hasEnded() {
			live++
		}
	}
	if live == 0 {
		t.refused = true
	}
	return live
}

func (t *table) awaitStarts(limit time.Duration) {
	t.mu.Lock()
	busy, calm := t.starts > 0, t.calm
	t.mu.Unlock()
	if !busy {
		return
	}
	select {
	case <-calm:
	case <-time.After(limit):
	}
}
