package inner

import (
	"fmt"
	"os"
	"sync"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/stdio"
)

// process is one container's or exec's process.
type process struct {
	id    string
	table *table

	mu     sync.Mutex
	rec    record.Process
	pidfd  *os.File
	io     *stdio.Stdio // nil for an exec
	master int          // an exec's terminal until its caller has taken it; -1 none
	undone bool         // its start failed, and its record is gone for good
	late   bool         // it had ended before this monitor looked, which was told by nobody

	beginning
	ended  chan struct{} // closed when the process has ended
	shown  chan struct{} // closed when the exit is published
	forget chan struct{} // closed when callers have no more interest
	gone   chan struct{} // closed when nothing of it runs any more
}

// beginning is the start of a process.
type beginning struct {
	quit     chan struct{} // closed when it is given up
	started  chan struct{} // closed when it has succeeded or failed
	startErr error         // set before started is closed
}

func newProcess(id string, spec record.Spec, t *table) *process {
	return &process{
		id:        id,
		table:     t,
		rec:       record.Process{ID: id, Spec: spec, State: monitorv1.Starting},
		master:    -1,
		beginning: beginning{quit: make(chan struct{}), started: make(chan struct{})},
		ended:     make(chan struct{}),
		shown:     make(chan struct{}),
		forget:    make(chan struct{}),
		gone:      make(chan struct{}),
	}
}

func (p *process) main() record.Ident {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.Main
}

func (p *process) spec() record.Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.Spec
}

func (p *process) kind() monitorv1.ProcessKind { return p.spec().Kind }

func (p *process) logPath() string { return p.spec().LogPath }

func (p *process) state() monitorv1.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.State
}

func (p *process) hasEnded() bool {
	s := p.state()
	return s == monitorv1.Draining || s == monitorv1.Exited
}

// save writes the record. The caller holds mu.
func (p *process) save() error {
	if p.undone {
		return nil
	}
	return p.table.records.Save(&p.rec)
}

// unrecord removes the record. How the process ends, if it was killed, is not
// recorded after that.
func (p *process) unrecord() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undone = true
	return p.table.records.Remove(p.id)
}

// change edits the record and writes it.
func (p *process) change(edit func(*record.Process)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	edit(&p.rec)
	return p.save()
}

// run notes that the process is there.
func (p *process) run(who record.Ident, cgroups string, pidfd *os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pidfd = pidfd
	p.rec.Main, p.rec.Cgroups = who, cgroups
	p.rec.State = monitorv1.Running
	p.rec.Command = record.Ident{}
	p.rec.StartedAt = time.Now()
	return p.save()
}

// end notes how the process has ended; only the first call counts. It is
// recorded before it returns, so that the caller may reap.
func (p *process) end(e linux.Ended, lost bool) {
	p.mu.Lock()
	if p.rec.Exit != nil {
		p.mu.Unlock()
		return
	}
	seen, earlier := p.table.records.Seen(p.id)
	if earlier && seen.Before(e.At) {
		e.At, e.Found = seen, false
	}
	p.rec.Exit = &monitorv1.Exit{
		ID: p.id, Kind: p.rec.Spec.Kind, PID: p.rec.Main.PID,
		Code: e.Code, Signal: e.Signal, FinishedAt: e.At, Found: e.Found, Lost: lost,
	}
	if lost {
		p.rec.Exit.Code = monitorv1.LostCode
	}
	p.rec.State = monitorv1.Draining
	who := p.rec.Main
	err := p.save()
	p.mu.Unlock()
	if err != nil {
		// Known to this process, at least; a new one would call it lost.
		p.table.log.Error("exit not recorded", "id", p.id, "error", err)
	}
	p.table.freePID(p, who.PID)
	p.table.records.DropExit(who)
	if earlier {
		p.table.records.DropSeen(p.id)
	}
	close(p.ended)
}

// publish completes the exit. The table calls it, in the order of the numbers.
func (p *process) publish(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	exit := *p.rec.Exit
	exit.Seq = seq
	p.rec.Exit = &exit
	p.rec.State = monitorv1.Exited
	if err := p.save(); err != nil {
		p.table.log.Error("exit not recorded as published", "id", p.id, "error", err)
	}
	close(p.shown)
}

func (p *process) publishedExit() *monitorv1.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rec.State != monitorv1.Exited {
		return nil
	}
	return p.rec.Exit
}

func (p *process) describe() monitorv1.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := monitorv1.Process{
		Started: p.rec.Started(),
		Kind:    p.rec.Spec.Kind,
		State:   p.rec.State,
		TTY:     p.rec.Spec.TTY,
		LogPath: p.rec.Spec.LogPath,
	}
	if p.io != nil {
		d.LogError = p.io.Problem()
		d.NoTerminal = d.State != monitorv1.Starting && p.io.MissesTerminal()
	}
	if d.State == monitorv1.Exited {
		d.Exit = p.rec.Exit
	}
	return d
}

// stdio returns the container's input and output once it has started.
func (p *process) stdio(what string) (*stdio.Stdio, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.rec.Spec.Kind != monitorv1.KindContainer:
		return nil, fmt.Errorf("%s of process %s: it is an exec, whose input and output are its caller's: %w", what, p.id, errdefs.ErrInvalidArgument)
	case p.io == nil || p.rec.State == monitorv1.Starting:
		return nil, fmt.Errorf("%s of process %s: it has not started: %w", what, p.id, errdefs.ErrPrecondition)
	}
	return p.io, nil
}

// takeMaster returns an exec's terminal, once.
func (p *process) takeMaster() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	fd := p.master
	p.master = -1
	return fd
}

func (p *process) pidfdNumber() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd == nil || p.rec.State != monitorv1.Running {
		return -1
	}
	return linux.RawFD(p.pidfd)
}

// handOver adds what a new outer process has to hold for the process.
func (p *process) handOver(held map[string]int) {
	if fd := p.pidfdNumber(); fd >= 0 {
		held[handover.KeyPidfd+p.id] = fd
	}
}
