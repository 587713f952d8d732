package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
)

// The names of the protocol of port-forward.
const (
	portForwardProtocol = "portforward.k8s.io"
	portHeader          = "port"
	requestIDHeader     = "requestID"
)

// Tunnel carries a connection to a port of a pod, by the address that a runtime gave for
// it, until both ends have said all or ctx ends. What either end closes is closed for the
// other, and leaves the other direction open. The error is that the pod could not be
// reached; that an end has gone is none.
//
// Each connection has a stream of its own, which the protocol does not ask for: within
// one stream who does not read would hold up the others.
func Tunnel(ctx context.Context, address string, port uint16, local net.Conn) error {
	conn, err := dial(ctx, address, portForwardProtocol)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	t := tunnel{conn: conn, local: local}
	if err := t.open(port); err != nil {
		return errors.Join(err, ctx.Err())
	}
	err = t.carry()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

type tunnel struct {
	conn          httpstream.Connection
	local         net.Conn
	failure, data httpstream.Stream
}

// open opens the two streams of a connection, in the order that servers expect.
func (t *tunnel) open(port uint16) (err error) {
	h := http.Header{}
	h.Set(portHeader, fmt.Sprint(port))
	h.Set(requestIDHeader, "0")
	h.Set(streamType, "error")
	if t.failure, err = t.conn.CreateStream(h); err != nil {
		return fmt.Errorf("open a stream for port %d: %w", port, err)
	}
	_ = t.failure.Close() // only read from
	h.Set(streamType, "data")
	if t.data, err = t.conn.CreateStream(h); err != nil {
		return fmt.Errorf("open a stream for port %d: %w", port, err)
	}
	return nil
}

// linger is how long a tunnel stays when both directions have ended: the runtime may still
// say that the connection came to nothing, and nobody says when a pod has taken the last
// that was sent to it.
const linger = time.Second

// carry returns when nothing moves any more, and closes both connections.
func (t *tunnel) carry() error {
	refused, sent := make(chan error, 1), make(chan error, 1)
	var work sync.WaitGroup
	defer work.Wait()
	defer func() { // ends the work
		_ = t.conn.Close()
		_ = t.local.Close()
	}()
	work.Go(func() { refused <- readRefusal(t.failure) })
	work.Go(func() {
		_, err := io.Copy(t.data, t.local)
		if err != nil {
			_ = t.data.Reset() // which ends the other direction, too
		} else {
			_ = t.data.Close()
		}
		sent <- err
	})
	if _, err := io.Copy(t.local, t.data); err != nil {
		return nil // the local end takes no more
	}
	if c, ok := t.local.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	return t.finish(refused, sent)
}

// finish waits for the other direction, and for whether there was a pod at all.
func (t *tunnel) finish(refused, sent <-chan error) error {
	var enough <-chan time.Time
	for {
		select {
		case err := <-refused:
			if err != nil || sent == nil {
				return err
			}
			refused = nil // the pod has said all, and may still take more
		case err := <-sent:
			if err != nil {
				return nil // the local end broke
			}
			sent, enough = nil, time.After(linger)
		case <-t.conn.CloseChan():
			return nil
		case <-enough:
			return nil
		}
	}
}

// readRefusal reads why a connection came to nothing; nil is that there was no such thing.
func readRefusal(r io.Reader) error {
	text, _ := io.ReadAll(io.LimitReader(r, maxRefusal)) // a stream that broke has said all that it will
	if reason := strings.TrimSpace(string(text)); reason != "" {
		return errors.New(reason)
	}
	return nil
}
