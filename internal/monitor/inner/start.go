package inner

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/cgroup"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/launch"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/request"
	"fairlead.run/internal/monitor/stdio"
	"fairlead.run/internal/monitor/wire"
)

// The places of a start at which a test kills the monitor.
var (
	reserved     = failpoint.Register("monitor.start.reserved")
	recorded     = failpoint.Register("monitor.start.recorded")
	ioMade       = failpoint.Register("monitor.start.io-made")
	afterFork    = failpoint.Register("monitor.start.after-fork")
	afterCommand = failpoint.Register("monitor.start.command-recorded")
	commandEnded = failpoint.Register("monitor.start.command-ended")
	afterAdopt   = failpoint.Register("monitor.start.after-adopt")
	ttyTaken     = failpoint.Register("monitor.start.terminal-taken")
	copying      = failpoint.Register("monitor.start.copying")
	unanswered   = failpoint.Register("monitor.start.unanswered")
	undone       = failpoint.Register("monitor.start.undone")
)

// start is OpStart. The same request again joins the one under way, or gets
// the answer of the one before.
func (in *Inner) start(ctx context.Context, req monitorv1.StartRequest) (monitorv1.Started, error) {
	if err := request.CheckStart(&req); err != nil {
		return monitorv1.Started{}, err
	}
	spec := record.Spec{
		Kind: monitorv1.KindContainer, PIDFile: req.PIDFile, IODir: req.IODir, Label: req.Label, Owner: req.Owner,
		LogPath: req.LogPath, LogDir: req.LogDir, LogMaxLine: req.LogMaxLine,
		Stdin: req.Stdin && !req.TTY, StdinOnce: req.StdinOnce, TTY: req.TTY,
		Token: req.Token, Deadline: time.Now().Add(req.Timeout), Cgroup: req.Cgroup, Sandbox: req.Sandbox,
	}
	p, mine, err := in.table.reserve(req.ID, spec)
	if err != nil {
		return monitorv1.Started{}, err
	}
	if mine {
		c := &launch.Command{Argv: req.Command, Sealed: req.Sealed, Env: req.Env, PIDFile: req.PIDFile, RuntimeLog: req.RuntimeLog, Deadline: spec.Deadline, Quit: p.quit}
		in.spawn(func(ctx context.Context) {
			in.begun(ctx, p, in.startContainer(ctx, p, c, req.Size))
		})
	}
	return p.awaitStart(ctx)
}

func (p *process) awaitStart(ctx context.Context) (monitorv1.Started, error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return monitorv1.Started{}, fmt.Errorf("wait for process %s to start: %w: %w", p.id, errdefs.ErrUnavailable, context.Cause(ctx))
	}
	if p.startErr != nil {
		return monitorv1.Started{}, p.startErr
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.Started(), nil
}

// begun ends a start: the process is followed from now on, or there is none
// and nothing is left of it.
func (in *Inner) begun(ctx context.Context, p *process, err error) {
	if err == nil {
		err = p.wanted()
	}
	if err != nil && ctx.Err() != nil {
		// At rest: the successor finds the record and goes on from there.
		p.startErr = err
		close(p.started)
		return
	}
	if err != nil {
		p.startErr = fmt.Errorf("start %s %s: %w", p.kind(), p.id, err)
		in.undoStart(p)
		_ = failpoint.Hit(undone)
		in.table.remove(p)
		in.table.startDone()
		close(p.started)
		p.dismiss()
		return
	}
	in.table.startDone()
	_ = failpoint.Hit(unanswered)
	close(p.started)
	in.supervise(ctx, p)
}

// undoStart removes what a failed start has made.
func (in *Inner) undoStart(p *process) {
	p.mu.Lock()
	io, pidfd, master := p.io, p.pidfd, p.master
	p.pidfd, p.master = nil, -1
	p.mu.Unlock()
	if pidfd != nil {
		_ = p.signalAll(unix.SIGKILL)
		_ = pidfd.Close()
		in.link.Drop(handover.KeyPidfd + p.id)
	}
	if master >= 0 {
		_ = unix.Close(master)
	}
	if io != nil {
		io.Close()
	}
	in.kills.Leave(p.id)
	if err := p.unrecord(); err != nil {
		in.cfg.Log.Error("record of a failed start not removed", "id", p.id, "error", err)
	}
}

// startContainer does the work of a start.
func (in *Inner) startContainer(ctx context.Context, p *process, c *launch.Command, size monitorv1.WindowSize) error {
	if err := failpoint.Hit(reserved); err != nil {
		return err
	}
	// Before the record, so that a successor takes no old pid for a new one.
	if err := c.RemovePID(); err != nil {
		return err
	}
	if err := in.joinLedger(p, p.spec().Cgroup); err != nil {
		return err
	}
	if err := failpoint.Hit(recorded); err != nil {
		return err
	}
	io := stdio.New(p.id, p.spec(), in.host())
	p.mu.Lock()
	p.io = io
	p.mu.Unlock()
	ends, err := io.Create()
	if err == nil {
		err = failpoint.Hit(ioMade)
	}
	if err != nil {
		wire.CloseAll(ends)
		return err
	}
	if p.spec().TTY {
		return in.startWithTerminal(ctx, p, c, size)
	}
	c.Stdio = [3]int(ends)
	talk := &stdio.Talk{IO: io, Pool: in.pool, Command: c}
	if err := in.runAndAdopt(ctx, p, c, ends, watch{look: talk.Look}); err != nil {
		return c.Explain(err, io.LastWords())
	}
	if err := io.Start(in.pool, 0); err != nil {
		return err
	}
	io.Open()
	return failpoint.Hit(copying)
}

func (in *Inner) startWithTerminal(ctx context.Context, p *process, c *launch.Command, size monitorv1.WindowSize) error {
	// Held before the container is recorded as running: who has it running has
	// its terminal.
	hold := func(fd int) { in.link.Hold(handover.KeyTTY+p.id, fd) }
	console, argv, ends, err := in.launcher.NewConsole(c.Argv, size, hold)
	if err != nil {
		return err
	}
	defer console.Close()
	c.Argv, c.Stdio = argv, [3]int(ends)
	master := -1
	watch := watch{ended: func() (err error) {
		master, err = console.Terminal()
		return err
	}}
	// The null device is there twice.
	err = in.runAndAdopt(ctx, p, c, ends[1:], watch)
	if err == nil {
		err = p.io.SetMaster(master)
	} else if master >= 0 {
		_ = unix.Close(master)
	}
	if err != nil {
		if ctx.Err() == nil {
			in.link.Drop(handover.KeyTTY + p.id)
		}
		return c.Explain(err, console.Quote())
	}
	if err := failpoint.Hit(ttyTaken); err != nil {
		return err
	}
	return p.io.Start(in.pool, 0)
}

// watch is what is to be done while a runtime command runs and when it has
// ended well. Each may be nil.
type watch struct {
	look, ended func() error
}

// markOf is the entry in the environment of a runtime command by which a
// successor of this process knows it, should the pid not have been recorded.
func markOf(id string, spec record.Spec) string {
	return fmt.Sprintf("FAIRLEAD_MONITOR_COMMAND=%s@%d", id, spec.Deadline.UnixNano())
}

// runAndAdopt runs the command, closes the descriptors that were for it, and
// makes the process that it leaves p's.
func (in *Inner) runAndAdopt(ctx context.Context, p *process, c *launch.Command, ends []int, w watch) error {
	c.Mark = markOf(p.id, p.spec())
	if err := p.wanted(); err != nil {
		wire.CloseAll(ends)
		return err
	}
	run, err := in.launcher.Fork(c)
	wire.CloseAll(ends)
	if err != nil {
		return err
	}
	if err = failpoint.Hit(afterFork); err == nil {
		err = p.change(func(r *record.Process) { r.Command = run.Who })
	}
	if err != nil {
		in.table.Kill(run.Who.PID)
		return err
	}
	_ = failpoint.Hit(afterCommand)
	if err := in.launcher.Await(ctx, c, run, w.look); err != nil {
		if ctx.Err() == nil {
			c.KillLeft()
		}
		return err
	}
	_ = failpoint.Hit(commandEnded)
	pid, err := c.Made()
	if err != nil {
		return err
	}
	if w.ended != nil {
		err = w.ended()
	}
	if err == nil {
		err = in.adopt(p, pid, c.Began)
	}
	if err != nil {
		c.KillLeft()
		return err
	}
	return failpoint.Hit(afterAdopt)
}

// adopt makes the process with this pid p's own. It may have ended already.
func (in *Inner) adopt(p *process, pid int, since time.Time) error {
	s, err := linux.ReadStat(pid)
	who, pidfd := record.Ident{PID: pid, Start: s.Start}, (*os.File)(nil)
	if err == nil {
		pidfd, err = linux.OpenProcess(pid, s.Start)
	}
	if err != nil && err != os.ErrProcessDone && !linux.NoProcess(err) {
		return fmt.Errorf("open process %d: %w", pid, err) // it may well live
	}
	if pidfd == nil && who.Start == 0 {
		if e, ok := in.records.ExitSince(pid, since); ok {
			who.Start = e.Start
		}
	}
	if err := p.run(who, cgroup.Of(pid), pidfd); err != nil {
		return err
	}
	if err := in.watchMemory(p); err != nil {
		return err
	}
	if e, ok := in.table.identify(p, who, since); ok {
		p.end(e, false)
		return nil
	}
	if pidfd == nil {
		in.resolve(p, nil, time.Now())
	}
	in.watchEnd(p)
	return nil
}
