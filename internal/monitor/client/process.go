package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/wire"
)

// Start starts a container and returns once its process is there. The same id
// again joins the start under way, or gets its answer while the process lives.
func (c *Client) Start(ctx context.Context, req monitorv1.StartRequest) (monitorv1.Started, error) {
	req.Token = rand.Text()
	req.Keep = c.options.Keep != nil
	var started monitorv1.Started
	fds, err := c.ask(ctx, request{op: monitorv1.OpStart, body: req}, &started)
	if req.Keep && err == nil {
		c.options.Keep.add(req.ID, started.Kept, fds)
		fds = nil
	}
	wire.CloseAll(fds)
	return started, err
}

// Exec starts one more process in a container, with the caller's files as its
// input, output and error; nil is /dev/null. The files stay the caller's, who
// only closes them, as soon as it wants to see the end of the output: they are
// put in blocking mode for the process. With a terminal there are no files, and its master end is returned.
func (c *Client) Exec(ctx context.Context, req monitorv1.ExecRequest, stdio [3]*os.File) (monitorv1.Started, *os.File, error) {
	req.Token = rand.Text()
	var passed []int
	for i, f := range stdio {
		if f == nil {
			continue
		}
		// A copy: the number stays valid whatever happens to the file.
		fd, err := linux.Duplicate(f)
		if err != nil {
			wire.CloseAll(passed)
			return monitorv1.Started{}, nil, fmt.Errorf("pass descriptor to exec %s: %w", req.ID, err)
		}
		// What an os.File of a pipe waits with is not what a program expects.
		_ = unix.SetNonblock(fd, false)
		req.Stdio[i] = true
		passed = append(passed, fd)
	}
	var started monitorv1.Started
	fds, err := c.ask(ctx, request{op: monitorv1.OpExec, body: req, fds: passed}, &started)
	wire.CloseAll(passed)
	if err != nil || !req.TTY {
		wire.CloseAll(fds)
		return started, nil, err
	}
	if len(fds) != 1 {
		wire.CloseAll(fds)
		return started, nil, fmt.Errorf("start exec %s: the monitor passed %d terminals: %w", req.ID, len(fds), errdefs.ErrInternal)
	}
	return started, fileOf(fds[0], "terminal"), nil
}

// fileOf makes a file that can be waited for without a thread.
func fileOf(fd int, name string) *os.File {
	// The file works without it, at the price of a thread while it waits.
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// Wait returns how a process has ended, once it has and its output is copied.
func (c *Client) Wait(ctx context.Context, id string) (monitorv1.Exit, error) {
	var exit monitorv1.Exit
	fds, err := c.ask(ctx, request{op: monitorv1.OpWait, body: monitorv1.IDRequest{ID: id}}, &exit)
	wire.CloseAll(fds)
	return c.options.Keep.complete(exit), err
}

// Events calls see with each recorded exit, in the order of their numbers, and
// then with each new one, until ctx ends or the connection is lost, which is
// an error that wraps ErrUnavailable. A caller that comes back gets everything
// again that was not forgotten.
func (c *Client) Events(ctx context.Context, see func(monitorv1.Exit)) error {
	return c.EventsAfter(ctx, 0, see)
}

// EventsAfter is Events for exits with a higher number than seq.
func (c *Client) EventsAfter(ctx context.Context, seq uint64, see func(monitorv1.Exit)) error {
	// There may be no first answer for long, so this is not call.
	body, err := json.Marshal(monitorv1.EventsRequest{After: seq})
	if err != nil {
		return err
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	keep := c.options.Keep
	if keep != nil {
		// Before the exits: when they are told, the output is complete.
		if err := c.resume(ctx, keep); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = conn.Send(monitorv1.Request{Version: monitorv1.Version, Op: monitorv1.OpEvents, Body: body})
	for err == nil {
		var answer monitorv1.Reply
		var fds []int
		fds, err = conn.Recv(&answer, monitorv1.MaxReply)
		wire.CloseAll(fds)
		if err == nil && answer.Error != nil {
			return fromWire(answer.Error)
		}
		if err != nil {
			break
		}
		var exit monitorv1.Exit
		if err = json.Unmarshal(answer.Body, &exit); err == nil {
			see(keep.complete(exit))
			keep.settle(exit.ID)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("follow exits: the monitor hung up: %w: %w", errdefs.ErrUnavailable, err)
}

// connect dials, and starts a monitor if there is none.
func (c *Client) connect(ctx context.Context) (*wire.Conn, error) {
	conn, err := c.options.dial(ctx)
	if !errors.Is(err, errNobody) {
		return conn, err
	}
	if err := start(ctx, c.options); err != nil {
		return nil, err
	}
	return c.options.dial(ctx)
}

// List returns all processes that the monitor knows, in no order.
func (c *Client) List(ctx context.Context) ([]monitorv1.Process, error) {
	var list monitorv1.ProcessList
	fds, err := c.ask(ctx, request{op: monitorv1.OpList}, &list)
	wire.CloseAll(fds)
	c.complete(list.Processes)
	return list.Processes, err
}

// complete adds what the caller has seen to what the monitor tells of exits.
func (c *Client) complete(list []monitorv1.Process) {
	for _, p := range list {
		if p.Exit != nil {
			*p.Exit = c.options.Keep.complete(*p.Exit)
		}
	}
}

// Find returns what the monitor knows of one process.
func (c *Client) Find(ctx context.Context, id string) (monitorv1.Process, error) {
	var list monitorv1.ProcessList
	fds, err := c.ask(ctx, request{op: monitorv1.OpList, body: monitorv1.ListRequest{ID: id}}, &list)
	wire.CloseAll(fds)
	if err != nil {
		return monitorv1.Process{}, err
	}
	c.complete(list.Processes)
	for _, p := range list.Processes {
		if p.ID == id {
			return p, nil
		}
	}
	return monitorv1.Process{}, fmt.Errorf("find process %s: the monitor does not know it: %w", id, errdefs.ErrNotFound)
}

// Signal sends a signal to a process; with all also to its descendants and the
// rest of its session, even when it has ended itself. The error of a process
// that has ended wraps ErrNotFound.
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal, all bool) error {
	body := monitorv1.SignalRequest{ID: id, Signal: int(sig), All: all}
	// Killing twice is killing; other signals may count.
	return c.tell(ctx, request{op: monitorv1.OpSignal, body: body, once: sig != unix.SIGKILL})
}

// GiveUp ends the start of a container or exec that is under way: the runtime
// command is killed, and the request for the start fails. It does not wait for that.
// The error of one that has started wraps ErrPrecondition, that of a process that
// the monitor does not know ErrNotFound, and an older monitor's, which cannot do
// it, ErrUnimplemented.
func (c *Client) GiveUp(ctx context.Context, id string) error {
	return c.tell(ctx, request{op: monitorv1.OpGiveUp, body: monitorv1.IDRequest{ID: id}})
}

// ReopenLog makes the monitor write to a new file at the log's path.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	return c.tell(ctx, request{op: monitorv1.OpReopenLog, body: monitorv1.IDRequest{ID: id}})
}

// Resize sets the size of a container's terminal.
func (c *Client) Resize(ctx context.Context, id string, width, height uint16) error {
	body := monitorv1.ResizeRequest{ID: id, Size: monitorv1.WindowSize{Width: width, Height: height}}
	return c.tell(ctx, request{op: monitorv1.OpResize, body: body})
}

// CloseStdin closes a container's input for good.
func (c *Client) CloseStdin(ctx context.Context, id string) error {
	return c.tell(ctx, request{op: monitorv1.OpCloseStdin, body: monitorv1.IDRequest{ID: id}})
}

// Forget drops the record and the FIFOs of a process that has ended.
func (c *Client) Forget(ctx context.Context, id string) error {
	err := c.tell(ctx, request{op: monitorv1.OpForget, body: monitorv1.IDRequest{ID: id}})
	if k := c.options.Keep; k != nil && (err == nil || errors.Is(err, errdefs.ErrNotFound)) {
		k.drop(id)
	}
	return err
}

// Info describes the monitor.
func (c *Client) Info(ctx context.Context) (monitorv1.Info, error) {
	var info monitorv1.Info
	fds, err := c.ask(ctx, request{op: monitorv1.OpInfo}, &info)
	wire.CloseAll(fds)
	return info, err
}

func (c *Client) tell(ctx context.Context, r request) error {
	fds, err := c.ask(ctx, r, nil)
	wire.CloseAll(fds)
	return err
}
