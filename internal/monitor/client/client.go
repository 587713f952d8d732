package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/wire"
)

// gap is how long a request waits for a monitor that is being restarted, each
// time that it is.
const gap = 2 * time.Second

// Options say which monitor is wanted.
type Options struct {
	// StateDir is the state directory of the runtime, an absolute path of at
	// most 80 bytes.
	StateDir string
	// Binary is fairlead-monitor. Empty: beside the own binary, then on PATH.
	Binary string
	// Cgroup is the name of the cgroup below the root that a monitor started
	// from here moves to. Empty: DefaultCgroup. NoCgroup: it stays.
	Cgroup string
	// Env is added to the environment of a monitor started from here. Only
	// names that begin with FAIRLEAD_MONITOR_ reach it.
	Env []string
	// Keep, if set, holds on to what of containers would be lost with the monitor.
	// Events has to be called for it to learn of those that others started.
	Keep *Keep
}

// DefaultCgroup and NoCgroup are values of Options.Cgroup.
const (
	DefaultCgroup = "fairlead-monitor"
	NoCgroup      = "-"
)

// Client asks one monitor. It is safe for concurrent use, and holds nothing
// that would have to be closed.
type Client struct {
	options Options
}

// socket returns the path of the monitor's socket.
func (o *Options) socket() string { return filepath.Join(o.StateDir, "monitor", "monitor.sock") }

// errNobody says that no monitor serves the state directory.
var errNobody = errors.New("no monitor serves this state directory")

// dial connects, if somebody listens.
func (o *Options) dial(ctx context.Context) (*wire.Conn, error) {
	conn, err := wire.Dial(ctx, o.socket())
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w: %w", errNobody, errdefs.ErrUnavailable, err)
	}
	return conn, err
}

// request is one request before it is sent.
type request struct {
	op   monitorv1.Op
	body any
	fds  []int
	// once says that sending it twice is not the same as sending it once.
	once bool
}

// call sends a request and decodes the answer into reply, unless that is nil.
// It returns the connection, which is the caller's, and the descriptors that
// came with the answer.
func (c *Client) call(ctx context.Context, r request, reply any) (*wire.Conn, []int, error) {
	deadline := time.Now().Add(gap)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		began := time.Now()
		conn, fds, again, err := c.try(ctx, r, reply)
		if time.Since(began) > gap/2 {
			// It was being answered, or waited for a monitor that hung.
			deadline, pause = time.Now().Add(gap), 5*time.Millisecond
		}
		if err == nil {
			return conn, fds, nil
		}
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("ask the monitor to %s: %w: %w", r.op, errdefs.ErrDeadline, context.Cause(ctx))
		}
		if !again || time.Now().After(deadline) {
			return nil, nil, err
		}
		if errors.Is(err, errNobody) {
			// Both of its processes are dead.
			if err := start(ctx, c.options); err != nil {
				return nil, nil, err
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// try sends a request once. It says whether to send it again.
func (c *Client) try(ctx context.Context, r request, reply any) (conn *wire.Conn, fds []int, again bool, err error) {
	body, err := json.Marshal(r.body)
	if err != nil {
		return nil, nil, false, fmt.Errorf("encode %s: %w: %w", r.op, errdefs.ErrInvalidArgument, err)
	}
	if len(body) > monitorv1.MaxRequest-1024 {
		return nil, nil, false, fmt.Errorf("encode %s: its %d bytes are more than the monitor takes: %w", r.op, len(body), errdefs.ErrInvalidArgument)
	}
	conn, err = c.options.dial(ctx)
	if err != nil {
		return nil, nil, true, err
	}
	dialed := conn // the function may still run when conn is returned as nil
	stop := context.AfterFunc(ctx, func() { _ = dialed.SetDeadline(time.Unix(1, 0)) })
	var answer monitorv1.Reply
	err = conn.Send(monitorv1.Request{Version: monitorv1.Version, Op: r.op, Body: body}, r.fds...)
	if err == nil {
		fds, err = conn.Recv(&answer, monitorv1.MaxReply)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		wire.CloseAll(fds)
		_ = conn.Close()
		if errors.Is(err, io.EOF) {
			err = errors.New("it was restarted before it answered")
		}
		// Nothing, or a part of it, was sent if the peer was dead by then; but
		// that cannot be told from its having died after the work.
		return nil, nil, !r.once, fmt.Errorf("ask the monitor to %s: %w: %w", r.op, errdefs.ErrUnavailable, err)
	}
	if answer.Error != nil {
		_ = conn.Close()
		wire.CloseAll(fds)
		return nil, nil, false, fromWire(answer.Error)
	}
	if reply != nil && len(answer.Body) > 0 {
		err = json.Unmarshal(answer.Body, reply)
	}
	if err != nil {
		_ = conn.Close()
		wire.CloseAll(fds)
		return nil, nil, false, fmt.Errorf("decode the monitor's answer to %s: %w: %w", r.op, errdefs.ErrInternal, err)
	}
	return conn, fds, false, nil
}

// ask is call for requests whose answer is all there is.
func (c *Client) ask(ctx context.Context, r request, reply any) ([]int, error) {
	conn, fds, err := c.call(ctx, r, reply)
	if err != nil {
		return nil, err
	}
	return fds, conn.Close()
}

// kinds maps what the wire calls an error to its value.
var kinds = map[monitorv1.Kind]error{
	monitorv1.KindNotFound:      errdefs.ErrNotFound,
	monitorv1.KindAlreadyExists: errdefs.ErrAlreadyExists,
	monitorv1.KindInvalid:       errdefs.ErrInvalidArgument,
	monitorv1.KindPrecondition:  errdefs.ErrPrecondition,
	monitorv1.KindUnavailable:   errdefs.ErrUnavailable,
	monitorv1.KindExhausted:     errdefs.ErrExhausted,
	monitorv1.KindUnimplemented: errdefs.ErrUnimplemented,
	monitorv1.KindDeadline:      errdefs.ErrDeadline,
	monitorv1.KindInternal:      errdefs.ErrInternal,
}

// remote is an error of the monitor's, with its kind as it was there.
type remote struct {
	message string
	kind    error
}

func (e *remote) Error() string { return e.message }

func (e *remote) Unwrap() error { return e.kind }

func fromWire(e *monitorv1.Error) error {
	kind, ok := kinds[e.Kind]
	if !ok {
		kind = errdefs.ErrInternal
	}
	return &remote{message: e.Message, kind: kind}
}
