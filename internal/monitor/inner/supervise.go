package inner

import (
	"context"
	"os"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
)

// drainLimit bounds how long an exit waits for the output that the process
// left. Output that takes longer, because the log cannot be written, is copied
// after the exit was published.
const drainLimit = 2 * time.Second

// The places of an exit at which a test kills the monitor, beside those of the
// reaper.
var (
	drained       = failpoint.Register("monitor.exit.drained")
	numbered      = failpoint.Register("monitor.exit.numbered")
	announcedExit = failpoint.Register("monitor.exit.announced")
)

// supervise follows a process from its start to the day it is forgotten.
func (in *Inner) supervise(ctx context.Context, p *process) {
	defer close(p.gone)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in.awaitEnd(ctx, p)
	if !p.hasEnded() {
		return // at rest; the successor goes on
	}
	in.ends.Forget(p.main())
	in.settleMemory(p)
	if p.io != nil {
		p.io.Drain(ctx, drainLimit)
	}
	if ctx.Err() != nil {
		return
	}
	if p.state() != monitorv1.Exited {
		_ = failpoint.Hit(drained)
		in.table.publish(p)
		_ = failpoint.Hit(announcedExit)
		in.link.Drop(handover.KeyPidfd + p.id)
	}
	in.closePidfd(p)
	select {
	case <-ctx.Done():
	case <-p.forget:
	}
}

func (in *Inner) closePidfd(p *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd != nil {
		_ = p.pidfd.Close()
		p.pidfd = nil
	}
}

// awaitEnd returns when the process has ended and that is recorded, or with
// ctx. For children, reap does it; for those of the outer process and of init
// it is seen here.
func (in *Inner) awaitEnd(ctx context.Context, p *process) {
	p.mu.Lock()
	pidfd := p.pidfd
	p.mu.Unlock()
	if pidfd == nil || p.hasEnded() {
		return
	}
	wake := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer wake()
	if err := linux.AwaitEnd(pidfd); err != nil {
		return // ctx
	}
	at := time.Now()
	who := p.main()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		select {
		case <-p.ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		// As long as it is a zombie, its parent will record it. This process does so
		// before it frees a child.
		if s, err := linux.ReadStat(who.PID); (linux.NoProcess(err) || err == nil && s.Start != who.Start) && !p.hasEnded() {
			in.resolve(p, pidfd, at)
		}
	}
}

// resolve finds out how a process ended that somebody else has reaped, and that
// was seen to have ended at a time.
func (in *Inner) resolve(p *process, pidfd *os.File, at time.Time) {
	who := p.main()
	e, ok := in.ends.Of(who, pidfd)
	if e.Found {
		e.At, e.Found = at, p.late
	}
	if !ok {
		in.cfg.Log.Warn("exit lost: neither the monitor nor the kernel knows how the process ended", "id", p.id, "pid", who.PID)
	}
	p.end(e, !ok)
}
