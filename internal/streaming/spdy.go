package streaming

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// The protocols of exec and attach over SPDY, the best first.
var spdyProtocols = []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}

// streamTypeHeader says what a stream is for.
const streamTypeHeader = "streamType"

// switchToSPDY answers the upgrade and takes the connection over.
func switchToSPDY(u *upgrade, r *http.Request) (net.Conn, error) {
	if !strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") ||
		!strings.Contains(strings.ToLower(r.Header.Get("Upgrade")), "spdy/3.1") {
		http.Error(u, "open the stream with an upgrade to SPDY/3.1 or to WebSocket", http.StatusBadRequest)
		return nil, errors.New("the client asks for neither SPDY/3.1 nor WebSocket")
	}
	u.Header().Set("Connection", "Upgrade")
	u.Header().Set("Upgrade", spdy.HeaderSpdy31)
	u.WriteHeader(http.StatusSwitchingProtocols)
	conn, _, err := u.Hijack()
	return conn, err
}

func (s *Server) openSPDY(ctx context.Context, u *upgrade, r *http.Request, want wanted) (*session, error) {
	protocol, err := httpstream.Handshake(r, u, spdyProtocols) // answers if it fails
	if err != nil {
		return nil, err
	}
	raw, err := switchToSPDY(u, r)
	if err != nil {
		return nil, err
	}
	a := &arrivals{expected: expectedStreams(protocol, want), streams: map[string]httpstream.Stream{}, complete: make(chan struct{})}
	conn, err := spdy.NewServerConnection(raw, func(st httpstream.Stream, replied <-chan struct{}) error {
		return a.add(ctx, st, replied)
	})
	if err != nil {
		return nil, fmt.Errorf("start SPDY: %w", err)
	}
	select {
	case <-a.complete:
	case <-time.After(s.cfg.StreamTimeout):
		err := fmt.Errorf("the client did not open all of its streams within %s", s.cfg.StreamTimeout)
		a.seal()
		a.tell(outcome{err: err}.encode(protocol == spdyProtocols[0]))
		leave(ctx, u.link, conn.CloseChan())
		_ = conn.Close()
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	sess := &session{}
	if st := a.streams["stdin"]; st != nil {
		sess.stdin = st
	}
	if st := a.streams["stdout"]; st != nil {
		sess.stdout = st
	}
	if st := a.streams["stderr"]; st != nil {
		sess.stderr = st
	}
	if st := a.streams["resize"]; st != nil {
		sess.resize = st
	}
	sess.background.Go(func() {
		select {
		case <-conn.CloseChan(): // the client may say so before it closes
			u.gone(errClientGone)
		case <-ctx.Done():
		}
	})
	sess.end = func(o outcome) {
		_ = raw.SetWriteDeadline(time.Now().Add(delivery))
		a.tell(o.encode(protocol == spdyProtocols[0]))
		leave(ctx, u.link, conn.CloseChan())
		_ = conn.Close()
	}
	return sess, nil
}

// expectedStreams are the types of streams that the client will open.
func expectedStreams(protocol string, want wanted) map[string]bool {
	resize := protocol == spdyProtocols[0] || protocol == spdyProtocols[1]
	out := map[string]bool{"error": true}
	for name, wanted := range map[string]bool{
		"stdin": want.stdin, "stdout": want.stdout, "stderr": want.stderr, "resize": want.tty && resize,
	} {
		if wanted {
			out[name] = true
		}
	}
	return out
}

// arrivals collects the streams as the client opens them.
type arrivals struct {
	expected map[string]bool
	complete chan struct{} // closed when all are there and answered

	mu      sync.Mutex
	streams map[string]httpstream.Stream // fixed once complete is closed, or sealed
	ready   int
}

// add takes a stream, or refuses one that nobody expects.
func (a *arrivals) add(ctx context.Context, st httpstream.Stream, replied <-chan struct{}) error {
	kind := st.Headers().Get(streamTypeHeader)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.expected[kind] || a.streams[kind] != nil {
		return fmt.Errorf("a stream of type %.20q is not expected", kind)
	}
	a.streams[kind] = st
	// The answer to the client goes out after this function returns.
	go func() {
		select {
		case <-replied:
			a.answered()
		case <-ctx.Done():
		}
	}()
	return nil
}

// seal refuses what comes from now on.
func (a *arrivals) seal() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expected = nil
}

// tell says how it went, and closes every stream after its last byte.
func (a *arrivals) tell(status []byte) {
	if st := a.streams["error"]; st != nil && len(status) > 0 {
		_, _ = st.Write(status)
	}
	for _, st := range a.streams {
		_ = st.Close()
	}
}

func (a *arrivals) answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ready++; a.ready == len(a.expected) {
		close(a.complete)
	}
}
