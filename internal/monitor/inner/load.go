package inner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/launch"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/orphan"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/stdio"
)

// load takes over every process from the records: what its predecessor was
// copying is finished first, then each process is followed from its state.
func (in *Inner) load(ctx context.Context) error {
	records, err := in.records.Load()
	if records == nil && err != nil {
		return err
	}
	if err != nil {
		in.cfg.Log.Error("some records cannot be read; their processes are not followed", "error", err)
	}
	ios := map[string]*stdio.Stdio{}
	var running []record.Ident
	for _, rec := range records {
		p := newProcess(rec.ID, rec.Spec, in.table)
		p.rec = *rec
		if rec.Spec.Kind == monitorv1.KindContainer {
			p.io = stdio.New(p.id, rec.Spec, in.host())
			p.io.Restore(rec.StdinClosed || rec.Exit != nil)
			ios[p.id] = p.io
			in.rejoinLedger(p)
		}
		in.table.add(p)
		if rec.State == monitorv1.Running {
			running = append(running, rec.Main)
		}
	}
	in.ends = orphan.New(orphan.Host{Records: in.records, Link: in.link, Spawn: in.spawn, Log: in.cfg.Log}, running)
	in.pool, err = journal.Open(filepath.Join(in.dir, "journal"), func(slot *journal.Slot, step journal.Step) bool {
		return in.finish(slot, step, ios[step.ID])
	})
	if err != nil {
		return err
	}
	for _, p := range in.table.all() {
		in.resume(ctx, p)
	}
	in.link.Discard()
	in.dropExits()
	return nil
}

// finish completes a step of copying that the predecessor began, and says
// whether the slot is kept because it could not yet.
func (in *Inner) finish(slot *journal.Slot, step journal.Step, io *stdio.Stdio) bool {
	if io == nil {
		return false // forgotten since
	}
	kept, err := io.Finish(slot, step)
	switch {
	case kept:
		in.cfg.Log.Warn("output waits", "id", step.ID, "error", err)
	case err != nil:
		in.cfg.Log.Error("output may be lost", "id", step.ID, "error", err)
	}
	return kept
}

// resume follows a process from where its record says it was.
func (in *Inner) resume(ctx context.Context, p *process) {
	if p.rec.State == monitorv1.Starting {
		in.spawn(func(ctx context.Context) { in.begun(ctx, p, in.resumeStart(ctx, p)) })
		return
	}
	close(p.started)
	if p.rec.Exit != nil {
		close(p.ended)
	} else {
		in.reopenProcess(p)
	}
	if p.rec.State == monitorv1.Exited {
		close(p.shown)
	}
	if p.io != nil {
		in.kills.Watch(p.id, p.rec.Cgroups)
		in.resumeCopy(p)
	}
	in.spawn(func(ctx context.Context) { in.supervise(ctx, p) })
}

// resumeCopy goes on copying, if there is anything left to copy from.
func (in *Inner) resumeCopy(p *process) {
	if err := p.io.Resume(in.pool); err != nil {
		in.cfg.Log.Error("output of a container cannot be copied any more", "id", p.id, "error", err)
	}
}

// reopenProcess gets hold of a process that was running.
func (in *Inner) reopenProcess(p *process) {
	who := p.rec.Main
	kept, held := in.link.Take(handover.KeyPidfd + p.id)
	if held {
		_ = unix.SetNonblock(kept, true)
		p.pidfd = os.NewFile(uintptr(kept), "pidfd")
	} else if fd, err := linux.OpenProcess(who.PID, who.Start); err == nil {
		p.pidfd = fd
	} else if errors.Is(err, os.ErrProcessDone) {
		p.late = true
		in.resolve(p, nil, time.Now())
		return
	}
	parent := 0
	if s, err := linux.ReadStat(who.PID); err == nil && s.Start == who.Start {
		parent = s.PPID
		p.late = s.State == 'Z' && !held
	}
	if ours := parent == os.Getpid() || parent == os.Getppid(); !ours {
		// Reaped by somebody who will not tell how it ended. The kernel does, as
		// long as one of us has it open.
		in.holdProcess(p)
		return
	}
	if held && p.kind() != monitorv1.KindContainer {
		in.link.Drop(handover.KeyPidfd + p.id)
	}
	in.watchEnd(p)
}

// watchEnd lets the outer process see when a container ends: this one may be
// stopped then.
func (in *Inner) watchEnd(p *process) {
	if p.kind() == monitorv1.KindContainer {
		in.holdProcess(p)
	}
}

func (in *Inner) holdProcess(p *process) {
	if fd := p.pidfdNumber(); fd >= 0 {
		in.link.Hold(handover.KeyPidfd+p.id, fd)
	}
}

// resumeStart completes a start that the predecessor did not live to see the
// end of: the runtime command is the outer process's child now, or has ended.
func (in *Inner) resumeStart(ctx context.Context, p *process) error {
	spec, who := p.rec.Spec, p.rec.Command
	c := &launch.Command{Argv: []string{"(unknown)"}, PIDFile: spec.PIDFile, Left: launch.Left{Mark: spec.Mark, Anywhere: spec.Anywhere}, Deadline: spec.Deadline}
	old := launch.Old{Mark: markOf(p.id, spec), PIDFile: spec.PIDFile, Deadline: spec.Deadline, Quit: p.quit, Exit: in.records.Exit}
	pid, err := old.Result(ctx, c, who)
	if err != nil {
		if spec.TTY && ctx.Err() == nil {
			// It may have failed because nobody took the terminal.
			return fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
		}
		return err
	}
	if spec.TTY && (p.io == nil || !p.io.HasMaster()) {
		c.KillLeft()
		return fmt.Errorf("the monitor was restarted before the runtime delivered the terminal: %w", errdefs.ErrUnavailable)
	}
	if err := in.adopt(p, pid, time.Time{}); err != nil {
		c.KillLeft()
		return err
	}
	in.ends.Watch(p.main()) // the outer process's child
	if p.io != nil {
		in.resumeCopy(p)
	}
	return nil
}

// dropExits removes exits that nobody will claim.
func (in *Inner) dropExits() {
	wanted, ids := map[record.Ident]bool{}, map[string]bool{}
	for _, p := range in.table.all() {
		if p.state() == monitorv1.Starting {
			return // it may claim any
		}
		if !p.hasEnded() {
			wanted[p.main()], ids[p.id] = true, true
		}
	}
	in.records.KeepSeen(ids)
	for _, e := range in.records.Exits() {
		if who := (record.Ident{PID: e.PID, Start: e.Start}); !wanted[who] {
			in.records.DropExit(who)
		}
	}
}
