package inner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/answer"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
)

// The places of the smaller operations at which a test kills the monitor.
var (
	stdinRecorded  = failpoint.Register("monitor.close-stdin.recorded")
	ioClosed       = failpoint.Register("monitor.forget.io-closed")
	unrecorded     = failpoint.Register("monitor.forget.unrecorded")
	shutdownAgreed = failpoint.Register("monitor.shutdown.agreed")
	signalled      = failpoint.Register("monitor.signal.sent")
)

// handlers has one function for each operation.
var handlers = map[monitorv1.Op]handler{
	monitorv1.OpInfo:       handleInfo,
	monitorv1.OpStart:      handleStart,
	monitorv1.OpExec:       handleExec,
	monitorv1.OpWait:       handleWait,
	monitorv1.OpEvents:     handleEvents,
	monitorv1.OpList:       handleList,
	monitorv1.OpSignal:     handleSignal,
	monitorv1.OpReopenLog:  handleReopenLog,
	monitorv1.OpResize:     handleResize,
	monitorv1.OpAttach:     handleAttach,
	monitorv1.OpCloseStdin: handleCloseStdin,
	monitorv1.OpKeep:       handleKeep,
	monitorv1.OpGive:       handleGive,
	monitorv1.OpGiveUp:     handleGiveUp,
	monitorv1.OpForget:     handleForget,
	monitorv1.OpShutdown:   handleShutdown,
}

func handleInfo(_ context.Context, in *Inner, _ *call) (any, []int, error) {
	info := monitorv1.Info{
		Version: in.cfg.Version, Protocol: monitorv1.Version,
		OuterPID: os.Getppid(), InnerPID: os.Getpid(), StartedAt: in.started,
		Goroutines: runtime.NumGoroutine(), Heap: linux.LiveHeap(),
	}
	for _, p := range in.table.all() {
		info.Processes++
		if !p.hasEnded() {
			info.Live++
		}
	}
	return info, nil, nil
}

func handleStart(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.StartRequest
	if err := c.decode(&req); err != nil {
		return nil, nil, err
	}
	started, err := in.start(ctx, req)
	if err != nil || !req.Keep {
		return started, nil, err
	}
	p, err := in.table.find(req.ID)
	if err != nil {
		return started, nil, nil // forgotten by another caller
	}
	started, fds := p.keep()
	return started, fds, nil
}

func handleExec(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.ExecRequest
	if err := c.decode(&req); err != nil {
		return nil, nil, err
	}
	started, master, err := in.exec(ctx, req, c.takeFDs())
	if err != nil || master < 0 {
		return started, nil, err
	}
	return started, []int{master}, nil
}

// named decodes a request that only names a process.
func named(in *Inner, c *call) (*process, error) {
	var req monitorv1.IDRequest
	if err := c.decode(&req); err != nil {
		return nil, err
	}
	return in.table.find(req.ID)
}

func handleWait(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	p, err := named(in, c)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := c.untilHangUp(ctx, in, nil)
	defer cancel()
	select {
	case <-p.shown:
		// The connection is being read for its end, so it cannot be used again.
		_ = answer.Send(c.conn, p.publishedExit(), nil)
	case <-p.forget:
		if exit := p.publishedExit(); exit != nil {
			_ = answer.Send(c.conn, exit, nil)
			break
		}
		_ = answer.Send(c.conn, nil, fmt.Errorf("wait for process %s: it did not start: %w", p.id, errdefs.ErrNotFound))
	case <-ctx.Done():
	}
	return nil, nil, errAnswered
}

func handleEvents(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.EventsRequest
	if err := c.decode(&req); err != nil {
		return nil, nil, err
	}
	ctx, cancel := c.untilHangUp(ctx, in, nil)
	defer cancel()
	seq := req.After
	for {
		exits, more := in.table.exitsAfter(seq)
		for _, e := range exits {
			if err := answer.Send(c.conn, e, nil); err != nil {
				return nil, nil, errAnswered
			}
			seq = e.Seq
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, nil, errAnswered
		}
	}
}

func handleList(_ context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.ListRequest
	if len(c.body) > 0 { // older callers send none
		if err := c.decode(&req); err != nil {
			return nil, nil, err
		}
	}
	list := monitorv1.ProcessList{Processes: []monitorv1.Process{}}
	if req.ID != "" {
		if p, err := in.table.find(req.ID); err == nil {
			list.Processes = append(list.Processes, p.describe())
		}
		return list, nil, nil
	}
	for _, p := range in.table.all() {
		list.Processes = append(list.Processes, p.describe())
	}
	return list, nil, nil
}

func handleSignal(_ context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.SignalRequest
	if err := c.decode(&req); err != nil {
		return nil, nil, err
	}
	p, err := in.table.find(req.ID)
	if err != nil {
		return nil, nil, err
	}
	if req.Signal < 1 || req.Signal > 64 {
		return nil, nil, fmt.Errorf("signal process %s: there is no signal %d: %w", p.id, req.Signal, errdefs.ErrInvalidArgument)
	}
	return nil, nil, errors.Join(p.signal(syscall.Signal(req.Signal), req.All), failpoint.Hit(signalled))
}

func handleReopenLog(_ context.Context, in *Inner, c *call) (any, []int, error) {
	p, err := named(in, c)
	if err != nil {
		return nil, nil, err
	}
	io, err := p.stdio("reopen log")
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, io.Reopen()
}

func handleResize(_ context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.ResizeRequest
	if err := c.decode(&req); err != nil {
		return nil, nil, err
	}
	p, err := in.table.find(req.ID)
	if err != nil {
		return nil, nil, err
	}
	io, err := p.stdio("resize terminal")
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, io.Resize(req.Size)
}

func handleCloseStdin(_ context.Context, in *Inner, c *call) (any, []int, error) {
	p, err := named(in, c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, p.closeStdin()
}

// closeStdin closes the container's input for good.
func (p *process) closeStdin() error {
	io, err := p.stdio("close input")
	if err != nil {
		return err
	}
	// Recorded first: a successor must not open it again.
	if err := p.change(func(r *record.Process) { r.StdinClosed = true }); err != nil {
		return err
	}
	if err := failpoint.Hit(stdinRecorded); err != nil {
		return err
	}
	io.CloseInput()
	return nil
}

func handleForget(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	p, err := named(in, c)
	if err != nil {
		return nil, nil, err
	}
	// An exit that is being published is about to be.
	select {
	case <-p.shown:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	default:
		if !p.hasEnded() {
			return nil, nil, fmt.Errorf("forget process %s: it is %s: %w", p.id, p.state(), errdefs.ErrPrecondition)
		}
		select {
		case <-p.shown:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	return nil, nil, in.forgetProcess(p)
}

func (in *Inner) forgetProcess(p *process) error {
	// The record goes after what it names, so that a monitor killed here is
	// asked again, and before the id is free for a new record.
	if p.io != nil {
		p.io.Close()
	}
	_ = failpoint.Hit(ioClosed)
	if err := in.records.Remove(p.id); err != nil {
		return err
	}
	_ = failpoint.Hit(unrecorded)
	in.table.remove(p)
	p.dismiss()
	return nil
}

// dismiss ends the supervision of a process.
func (p *process) dismiss() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.forget:
	default:
		close(p.forget)
	}
}

func handleShutdown(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.ShutdownRequest
	if err := c.decode(&req); err != nil {
		return nil, nil, err
	}
	if err := in.prepareShutdown(ctx, req); err != nil {
		return nil, nil, err
	}
	_ = failpoint.Hit(shutdownAgreed)
	_ = answer.Send(c.conn, nil, nil)
	in.rest <- shutdown
	return nil, nil, errAnswered
}

// forceLimit bounds how long a forced shutdown waits for what it killed.
const forceLimit = 10 * time.Second

// prepareShutdown makes sure that nothing lives, if need be and allowed by
// killing it, and that nothing is started any more.
func (in *Inner) prepareShutdown(ctx context.Context, req monitorv1.ShutdownRequest) error {
	live := in.table.refuseIfIdle()
	if live > 0 && !req.Force {
		return fmt.Errorf("shut the monitor down: %d processes live: %w", live, errdefs.ErrPrecondition)
	}
	deadline := time.After(forceLimit)
	for ; live > 0; live = in.table.refuseIfIdle() {
		for _, p := range in.table.all() {
			if err := p.signal(unix.SIGKILL, true); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
				in.cfg.Log.Warn("process not killed", "id", p.id, "error", err)
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			return fmt.Errorf("shut the monitor down: %d processes still live after they were killed: %w", live, errdefs.ErrDeadline)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, p := range in.table.all() {
		if err := in.forgetProcess(p); err != nil {
			in.cfg.Log.Warn("record not removed", "id", p.id, "error", err)
		}
	}
	return nil
}
