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
	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/stream"
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
	ios := map[string]*stdio{}
	for _, rec := range records {
		p := newProcess(rec.ID, rec.Spec, in.table)
		p.rec = *rec
		if rec.Spec.Kind == monitorv1.KindContainer {
			p.io = in.reopenStdio(rec)
			ios[p.id] = p.io
		}
		in.table.add(p)
	}
	in.pool, err = journal.Open(filepath.Join(in.dir, "journal"), func(slot *journal.Slot, step journal.Step) {
		in.finish(slot, step, ios[step.ID])
	})
	if err != nil {
		return err
	}
	for _, p := range in.table.all() {
		in.resume(ctx, p)
	}
	in.link.discard()
	in.dropExits()
	return nil
}

// finish completes a step of copying that the predecessor began.
func (in *Inner) finish(slot *journal.Slot, step journal.Step, io *stdio) {
	if io == nil {
		return // forgotten since
	}
	left := stream.Left{LogPath: io.spec.LogPath, MaxLine: io.spec.LogMaxLine, FIFO: -1}
	if i := int(step.Stream) - 1; i >= 0 && i < len(io.sources) {
		left.FIFO = linux.RawFD(io.sources[i])
	}
	if err := stream.Finish(slot, step, left); err != nil {
		in.cfg.Log.Error("output may be lost", "id", step.ID, "error", err)
	}
}

// reopenStdio opens what can be opened by name and takes the rest from the
// outer process. What is missing is missing: the container lives on.
func (in *Inner) reopenStdio(rec *record.Process) *stdio {
	s := newStdio(rec.ID, rec.Spec, in.link)
	log := in.cfg.Log.With("id", rec.ID)
	if err := s.reopenOutputs(); err != nil {
		log.Error("output of a container cannot be copied any more", "error", err)
	}
	if fd, ok := in.link.take(handover.KeyTTY + rec.ID); ok {
		if err := s.setMaster(fd); err != nil {
			log.Error("terminal of a container is lost", "error", err)
		}
	}
	if !rec.Spec.Stdin || rec.StdinClosed || rec.Exit != nil {
		return s
	}
	if fd, ok := in.link.take(handover.KeyStdin + rec.ID); ok {
		s.input = fd
		return s
	}
	// Both processes were dead, and the container may have seen the end of its
	// input. One that did not goes on.
	if err := s.openInput(); err != nil && !errors.Is(err, unix.ENXIO) {
		log.Warn("input of a container is closed", "error", err)
	}
	return s
}

func (s *stdio) reopenOutputs() error {
	if s.spec.LogPath != "" {
		s.log = crilog.Later(s.spec.LogPath)
	}
	if s.spec.TTY {
		return nil
	}
	err := s.openOutputs()
	if errors.Is(err, os.ErrNotExist) {
		return nil // before they were made
	}
	return err
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
		in.resumeCopy(p.io)
	}
	in.spawn(func(ctx context.Context) { in.supervise(ctx, p) })
}

func (in *Inner) resumeCopy(s *stdio) {
	if len(s.sources) == 0 && s.master == nil {
		return
	}
	if err := s.start(in, in.pool, 0); err != nil {
		in.cfg.Log.Error("output of a container cannot be copied any more", "id", s.id, "error", err)
	}
}

// reopenProcess gets hold of a process that was running.
func (in *Inner) reopenProcess(p *process) {
	who := p.rec.Main
	kept, held := in.link.take(handover.KeyPidfd + p.id)
	if held {
		_ = unix.SetNonblock(kept, true)
		p.pidfd = os.NewFile(uintptr(kept), "pidfd")
	} else if fd, err := linux.OpenProcess(who.PID, who.Start); err == nil {
		p.pidfd = fd
	} else if errors.Is(err, os.ErrProcessDone) {
		in.resolve(p, who, nil)
		return
	}
	// Those of init, or of whoever took the outer process's children, are
	// reaped by somebody who will not tell. The kernel does, as long as one of
	// us has them open.
	parent := 0
	if s, err := linux.ReadStat(who.PID); err == nil && s.Start == who.Start {
		parent = s.PPID
	}
	if ours := parent == os.Getpid() || parent == os.Getppid(); ours && held {
		in.link.drop(handover.KeyPidfd + p.id)
	} else if fd := p.pidfdNumber(); !ours && fd >= 0 {
		in.link.hold(handover.KeyPidfd+p.id, fd)
	}
}

// resumeStart completes a start that the predecessor did not live to see the
// end of: the runtime command is the outer process's child now, or has ended.
func (in *Inner) resumeStart(ctx context.Context, p *process) error {
	spec, who := p.rec.Spec, p.rec.Command
	c := &command{argv: []string{"(unknown)"}, pidFile: spec.PIDFile, deadline: spec.Deadline}
	if who.PID == 0 {
		return fmt.Errorf("the monitor was restarted before the runtime command began: %w", errdefs.ErrUnavailable)
	}
	if err := in.awaitCommand(ctx, who, spec.Deadline); err != nil {
		c.killLeft()
		return err
	}
	pid, err := c.readPID()
	if err != nil {
		return fmt.Errorf("the monitor was restarted while the runtime command ran, which left no process: %w: %w", errdefs.ErrUnavailable, err)
	}
	// The start of this process is newer than the command, or the file is old.
	if s, err := linux.ReadStat(pid); err == nil && s.Start < who.Start {
		return fmt.Errorf("the monitor was restarted while the runtime command ran, and pid %d is not its work: %w", pid, errdefs.ErrUnavailable)
	}
	if spec.TTY && (p.io == nil || p.io.master == nil) {
		c.killLeft()
		return fmt.Errorf("the monitor was restarted before the runtime delivered the terminal: %w", errdefs.ErrUnavailable)
	}
	if err := in.adopt(p, pid, time.Time{}); err != nil {
		return err
	}
	if p.io != nil {
		in.resumeCopy(p.io)
	}
	return nil
}

// awaitCommand waits for a runtime command that is not this process's child,
// and kills it at its deadline.
func (in *Inner) awaitCommand(ctx context.Context, who record.Ident, deadline time.Time) error {
	pidfd, err := linux.OpenProcess(who.PID, who.Start)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = pidfd.Close() }()
	wake := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer wake()
	_ = pidfd.SetReadDeadline(deadline)
	err = linux.AwaitEnd(pidfd)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		// It lives, so its group is still its own.
		_ = linux.KillGroup(who.PID)
		return fmt.Errorf("the runtime command did not end in time and was killed: %w", errdefs.ErrDeadline)
	}
	return nil
}

// dropExits removes exits that nobody will claim.
func (in *Inner) dropExits() {
	wanted := map[record.Ident]bool{}
	for _, p := range in.table.all() {
		if p.state() == monitorv1.Starting {
			return // it may claim any
		}
		wanted[p.main()] = true
	}
	for _, e := range in.records.Exits() {
		if who := (record.Ident{PID: e.PID, Start: e.Start}); !wanted[who] {
			in.records.DropExit(who)
		}
	}
}
