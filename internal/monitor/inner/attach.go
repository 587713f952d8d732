package inner

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/answer"
	"fairlead.run/internal/monitor/stream"
	"fairlead.run/internal/monitor/wire"
)

// The places at which a test kills the monitor as a caller attaches and leaves.
var (
	attachJoined = failpoint.Register("monitor.attach.joined")
	attachLeft   = failpoint.Register("monitor.attach.left")
)

// handleAttach serves one attached caller until either side ends it.
func handleAttach(ctx context.Context, in *Inner, c *call) (any, []int, error) {
	var req monitorv1.AttachRequest
	if err := c.decode(&req); err != nil {
		return nil, nil, err
	}
	p, err := in.table.find(req.ID)
	if err != nil {
		return nil, nil, err
	}
	io, err := p.stdio("attach to input and output")
	if err != nil {
		return nil, nil, err
	}
	if p.hasEnded() {
		return nil, nil, fmt.Errorf("attach to container %s: it has ended: %w", p.id, errdefs.ErrPrecondition)
	}
	sinks, err := stream.SinksOf(&req, c.fds)
	if err != nil {
		return nil, nil, err
	}
	c.fds = nil // they are the sinks' now
	defer func() {
		for _, s := range sinks {
			_ = s.Close() // done already by those that ran
		}
	}()
	var input []int
	if req.Stdin {
		fd, err := io.InputFD()
		if err != nil {
			return nil, nil, err
		}
		if fd >= 0 {
			input = []int{fd}
		}
	}
	// Added before the answer: the caller misses nothing after it.
	io.Attach(sinks)
	defer func() {
		io.Detach(sinks)
		_ = failpoint.Hit(attachLeft)
	}()
	_ = failpoint.Hit(attachJoined)
	err = answer.Send(c.conn, monitorv1.Attached{TTY: p.spec().TTY, Stdin: len(input) > 0}, nil, input...)
	wire.CloseAll(input)
	if err == nil {
		err = in.passOn(ctx, p, c, sinks)
	}
	note := monitorv1.AttachNote{Ended: true}
	if err != nil {
		note.Error = answer.Error(err)
	}
	// A caller that has hung up does not need it.
	_ = c.conn.Send(note)
	return nil, nil, errAnswered
}

// passOn copies output to the caller until it ends, and looks after the input
// when the caller is done with it.
func (in *Inner) passOn(ctx context.Context, p *process, c *call, sinks []*stream.Sink) error {
	var req monitorv1.AttachRequest
	if err := c.decode(&req); err != nil {
		return err
	}
	// A caller that dies without a word may have written.
	var wrote, told atomic.Bool
	inputDone := func() {
		if !req.Stdin || !p.spec().StdinOnce || told.Load() && !wrote.Load() || in.resting.Load() {
			return
		}
		if err := p.closeStdin(); err != nil {
			in.cfg.Log.Error("input not closed after its only use", "id", p.id, "error", err)
		}
	}
	ctx, cancel := c.untilHangUp(ctx, in, func(n monitorv1.AttachNote) {
		if n.StdinDone {
			told.Store(true)
			wrote.Store(n.Wrote)
			inputDone()
		}
	})
	defer cancel()
	defer inputDone()

	errs := make([]error, len(sinks))
	var wg sync.WaitGroup
	for i, s := range sinks {
		wg.Go(func() {
			errs[i] = s.Run(ctx)
			if errs[i] != nil {
				cancel() // one stream of an attached caller alone is of no use
			}
		})
	}
	if len(sinks) == 0 {
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if in.resting.Load() {
		return fmt.Errorf("attach to container %s: %w; attach again: %w", p.id, errRest, errdefs.ErrUnavailable)
	}
	return nil
}
