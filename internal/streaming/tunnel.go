package streaming

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// tunnelProtocol is port-forward's SPDY inside WebSocket messages.
const tunnelProtocol = "SPDY/3.1+" + portForwardProtocol

// asksForTunnel says whether a client can do with the tunnel.
func asksForTunnel(r *http.Request) bool {
	return slices.Contains(websocket.Subprotocols(r), tunnelProtocol)
}

// tunnel is a connection whose bytes travel in WebSocket messages.
type tunnel struct {
	ws      *websocket.Conn
	message io.Reader // the rest of the message being read, or nil
	writing sync.Mutex
}

var _ net.Conn = (*tunnel)(nil)

// Read implements net.Conn.
func (t *tunnel) Read(p []byte) (int, error) {
	for {
		if t.message == nil {
			kind, m, err := t.ws.NextReader()
			if err != nil {
				return 0, endOfTunnel(err)
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("a WebSocket message of the tunnel is not binary")
			}
			t.message = m
		}
		n, err := t.message.Read(p)
		if errors.Is(err, io.EOF) {
			t.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// endOfTunnel is io.EOF where the client closed as it should.
func endOfTunnel(err error) error {
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway) {
		return io.EOF
	}
	return err
}

// Write implements net.Conn.
func (t *tunnel) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if err := t.ws.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements net.Conn.
func (t *tunnel) Close() error {
	_ = t.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(linger))
	return t.ws.Close()
}

// LocalAddr implements net.Conn.
func (t *tunnel) LocalAddr() net.Addr { return t.ws.LocalAddr() }

// RemoteAddr implements net.Conn.
func (t *tunnel) RemoteAddr() net.Addr { return t.ws.RemoteAddr() }

// SetDeadline implements net.Conn.
func (t *tunnel) SetDeadline(d time.Time) error {
	return errors.Join(t.SetReadDeadline(d), t.SetWriteDeadline(d))
}

// SetReadDeadline implements net.Conn.
func (t *tunnel) SetReadDeadline(d time.Time) error { return t.ws.SetReadDeadline(d) }

// SetWriteDeadline implements net.Conn.
func (t *tunnel) SetWriteDeadline(d time.Time) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.ws.SetWriteDeadline(d)
}
