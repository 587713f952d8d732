package inner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/answer"
	"fairlead.run/internal/monitor/wire"
)

// serve accepts callers until ctx ends. Those who come later wait in the
// socket's queue for the successor.
func (in *Inner) serve(ctx context.Context, l *wire.Listener) {
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			in.wg.Go(func() { in.converse(ctx, conn) })
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		default:
			// Out of descriptors or memory; what is living needs none.
			in.cfg.Log.Error("caller not accepted", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}
}

// call is one request being answered.
type call struct {
	conn *wire.Conn
	body json.RawMessage
	fds  []int // the handler's: it takes them with takeFDs
}

// decode reads the body strictly enough to name what is wrong with it.
func (c *call) decode(v any) error {
	if len(c.body) == 0 {
		return fmt.Errorf("decode request: the body is missing: %w", errdefs.ErrInvalidArgument)
	}
	if err := json.Unmarshal(c.body, v); err != nil {
		return fmt.Errorf("decode request: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	return nil
}

func (c *call) takeFDs() []int {
	fds := c.fds
	c.fds = nil
	return fds
}

// converse answers one caller's requests in turn.
func (in *Inner) converse(ctx context.Context, conn *wire.Conn) {
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if uid, err := conn.PeerUID(); err != nil || uid != 0 {
		_ = conn.Send(monitorv1.Reply{Error: &monitorv1.Error{Kind: monitorv1.KindPrecondition, Message: "the monitor serves root only"}})
		return
	}
	for {
		var req monitorv1.Request
		fds, err := conn.Recv(&req, monitorv1.MaxRequest)
		if errors.Is(err, wire.ErrTooLarge) || errors.Is(err, wire.ErrMalformed) {
			err = fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
			if answer.Send(conn, nil, err) != nil || errors.Is(err, wire.ErrTooLarge) {
				return
			}
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.ECONNRESET) {
				in.cfg.Log.Warn("caller lost", "error", err)
			}
			return
		}
		if !in.answerOne(ctx, conn, &req, fds) {
			return
		}
	}
}

// handler answers one kind of request. Its descriptors are sent and closed.
type handler func(context.Context, *Inner, *call) (any, []int, error)

// errAnswered says that a handler has sent all there is to send, and that the
// connection ends.
var errAnswered = errors.New("answered")

// answerOne answers a request, and says whether another may come.
func (in *Inner) answerOne(ctx context.Context, conn *wire.Conn, req *monitorv1.Request, fds []int) bool {
	c := &call{conn: conn, body: req.Body, fds: fds}
	defer func() { wire.CloseAll(c.takeFDs()) }()
	handle, known := handlers[req.Op]
	switch {
	case req.Version != monitorv1.Version:
		return answer.Send(conn, nil, fmt.Errorf("answer request: this monitor speaks version %d of the protocol, not %d; restart the daemon and the monitor with the same release: %w", monitorv1.Version, req.Version, errdefs.ErrUnimplemented)) == nil
	case !known:
		return answer.Send(conn, nil, fmt.Errorf("answer request: unknown operation %.40q: %w", req.Op, errdefs.ErrUnimplemented)) == nil
	case len(fds) > monitorv1.MaxDescriptors:
		return answer.Send(conn, nil, fmt.Errorf("answer request: %d descriptors came with it, of which %d are allowed: %w", len(fds), monitorv1.MaxDescriptors, errdefs.ErrInvalidArgument)) == nil
	}
	body, out, err := handle(ctx, in, c)
	defer wire.CloseAll(out)
	if errors.Is(err, errAnswered) {
		return false
	}
	if errors.Is(err, errRest) || in.resting.Load() && errors.Is(err, context.Canceled) {
		return false // the caller asks the successor
	}
	return answer.Send(conn, body, err, out...) == nil
}

// untilHangUp returns a context that ends when the caller hangs up. Nothing
// more may be received on the connection but by note, if it is set.
func (c *call) untilHangUp(ctx context.Context, in *Inner, note func(monitorv1.AttachNote)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	in.wg.Go(func() {
		defer cancel()
		for {
			var n monitorv1.AttachNote
			fds, err := c.conn.Recv(&n, monitorv1.MaxRequest)
			wire.CloseAll(fds)
			if err != nil {
				return
			}
			if note != nil {
				note(n)
			}
		}
	})
	return ctx, cancel
}
