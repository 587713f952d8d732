package inner

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/launch"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/request"
	"fairlead.run/internal/monitor/wire"
)

// The places of an exec at which a test kills the monitor, beside those that it
// has in common with a start.
var (
	execRecorded = failpoint.Register("monitor.exec.recorded")
	execTerminal = failpoint.Register("monitor.exec.terminal-taken")
)

// exec is OpExec. It closes fds. It returns the terminal's master end, which
// becomes the caller's, or -1.
func (in *Inner) exec(ctx context.Context, req monitorv1.ExecRequest, fds []int) (monitorv1.Started, int, error) {
	ends, err := request.ExecEnds(&req, fds)
	if err != nil {
		wire.CloseAll(fds)
		return monitorv1.Started{}, -1, err
	}
	spec := record.Spec{Kind: monitorv1.KindExec, PIDFile: req.PIDFile, TTY: req.TTY, Mark: req.Mark, Anywhere: req.MarkAnywhere, Token: req.Token, Deadline: time.Now().Add(req.Timeout)}
	p, mine, err := in.table.reserve(req.ID, spec)
	if err != nil || !mine {
		wire.CloseAll(ends)
	}
	if err != nil {
		return monitorv1.Started{}, -1, err
	}
	if mine {
		c := &launch.Command{Argv: req.Command, Sealed: req.Sealed, Env: req.Env, PIDFile: req.PIDFile, RuntimeLog: req.RuntimeLog, Left: launch.Left{Mark: spec.Mark, Anywhere: spec.Anywhere}, Score: req.OOMScoreAdj, Deadline: spec.Deadline, Quit: p.quit}
		in.spawn(func(ctx context.Context) {
			in.begun(ctx, p, in.startExec(ctx, p, c, startEnds{ends: ends, size: req.Size}))
		})
	}
	started, err := p.awaitStart(ctx)
	if err != nil {
		in.abandon(p)
		return monitorv1.Started{}, -1, err
	}
	master := p.takeMaster()
	if req.TTY && master < 0 {
		return monitorv1.Started{}, -1, fmt.Errorf("start exec %s: it runs, but its terminal went to an earlier request or with a restart of the monitor; end it and start another: %w", req.ID, errdefs.ErrUnavailable)
	}
	return started, master, nil
}

// abandon closes the terminal of an exec whose caller has gone before it
// started, which ends what runs on it.
func (in *Inner) abandon(p *process) {
	in.spawn(func(ctx context.Context) {
		select {
		case <-p.started:
		case <-ctx.Done():
			return
		}
		if fd := p.takeMaster(); fd >= 0 {
			_ = unix.Close(fd)
		}
	})
}

// startEnds is what an exec is started with beside its command.
type startEnds struct {
	ends []int // input, output, error; none with a terminal
	size monitorv1.WindowSize
}

func (in *Inner) startExec(ctx context.Context, p *process, c *launch.Command, with startEnds) error {
	err := c.RemovePID()
	if err == nil {
		err = p.change(func(*record.Process) {})
	}
	if err != nil {
		wire.CloseAll(with.ends)
		return err
	}
	if err := failpoint.Hit(execRecorded); err != nil {
		wire.CloseAll(with.ends)
		return err
	}
	if !p.spec().TTY {
		c.Stdio = [3]int(with.ends)
		if err := in.runAndAdopt(ctx, p, c, with.ends, watch{}); err != nil {
			return c.Explain(err, nil)
		}
		return nil
	}
	console, argv, ends, err := in.launcher.NewConsole(c.Argv, with.size, nil)
	if err != nil {
		return err
	}
	defer console.Close()
	c.Argv, c.Stdio = argv, [3]int(ends)
	ended := func() error {
		fd, err := console.Terminal()
		p.mu.Lock()
		p.master = fd
		p.mu.Unlock()
		return err
	}
	if err := in.runAndAdopt(ctx, p, c, ends[1:], watch{ended: ended}); err != nil {
		return c.Explain(err, console.Quote())
	}
	return failpoint.Hit(execTerminal)
}
