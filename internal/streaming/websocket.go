package streaming

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// The channels of exec and attach over WebSocket: the first byte of a message.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelResize
	channelClose = 255 // from version 5 on: the next byte is the channel that ends
)

// wsProtocol is how one version of the protocol encodes its messages.
type wsProtocol struct {
	base64     bool // text messages, for clients that cannot send bytes
	jsonStatus bool // the outcome is a Status object, not text
	halfClose  bool // channelClose has its meaning
}

// The versions there are. A client that names none speaks the oldest.
var wsProtocols = map[string]wsProtocol{
	"v5.channel.k8s.io":        {jsonStatus: true, halfClose: true},
	"v4.channel.k8s.io":        {jsonStatus: true},
	"v4.base64.channel.k8s.io": {jsonStatus: true, base64: true},
	"channel.k8s.io":           {},
	"base64.channel.k8s.io":    {base64: true},
	"":                         {},
}

func isWebSocket(r *http.Request) bool { return websocket.IsWebSocketUpgrade(r) }

// upgradeWebSocket takes the connection over for the first protocol of the
// client's list that is supported. It answers if it fails.
func upgradeWebSocket(u *upgrade, r *http.Request, supported func(string) bool) (*websocket.Conn, error) {
	asked := websocket.Subprotocols(r)
	var chosen []string
	for _, p := range asked {
		if supported(p) {
			chosen = []string{p}
			break
		}
	}
	if chosen == nil && (len(asked) > 0 || !supported("")) {
		http.Error(u, "none of the WebSocket protocols asked for is supported", http.StatusForbidden)
		return nil, fmt.Errorf("the client supports only the WebSocket protocols %.200q", asked)
	}
	up := websocket.Upgrader{
		ReadBufferSize:  32 << 10, // not the HTTP server's buffer, which would read past the link
		WriteBufferSize: 32 << 10,
		Subprotocols:    chosen,
		// The token in the URL is the permission; where a browser got it from
		// is for whoever gave it away to judge.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	return up.Upgrade(u, r, nil)
}

func (s *Server) openWebSocket(ctx context.Context, u *upgrade, r *http.Request, want wanted) (*session, error) {
	conn, err := upgradeWebSocket(u, r, func(p string) bool { _, ok := wsProtocols[p]; return ok })
	if err != nil {
		return nil, err
	}
	ws := &wsSession{conn: conn, protocol: wsProtocols[conn.Subprotocol()], inputs: map[byte]*io.PipeWriter{}}
	sess := &session{}
	if want.stdin {
		sess.stdin = ws.input(channelStdin)
	}
	if want.tty {
		sess.resize = ws.input(channelResize)
	}
	first := byte(channelError)
	if want.stderr {
		sess.stderr, first = ws.output(channelStderr), channelStderr
	}
	if want.stdout {
		sess.stdout, first = ws.output(channelStdout), channelStdout
	}
	// An empty message tells clients that wait for one that they are connected.
	_, _ = ws.output(first).Write(nil)

	read := make(chan struct{})
	sess.background.Go(func() {
		defer close(read)
		ws.receive()
	})
	sess.end = func(o outcome) {
		ws.end(o)
		leave(ctx, u.link, read) // until the client has closed too
	}
	return sess, nil
}

// wsSession is what one WebSocket connection carries.
type wsSession struct {
	conn     *websocket.Conn
	protocol wsProtocol
	inputs   map[byte]*io.PipeWriter // fixed before receive runs
	writing  sync.Mutex
}

// input is where the messages of a channel can be read.
func (ws *wsSession) input(channel byte) *io.PipeReader {
	r, w := io.Pipe()
	ws.inputs[channel] = w
	return r
}

// receive sorts messages by channel until the connection ends.
func (ws *wsSession) receive() {
	defer func() {
		for _, w := range ws.inputs {
			_ = w.Close()
		}
	}()
	for {
		_, m, err := ws.conn.NextReader()
		if err != nil {
			return
		}
		var channel [1]byte
		if _, err := io.ReadFull(m, channel[:]); err != nil {
			continue // an empty message is a way to keep connections alive
		}
		ws.dispatch(channel[0], m)
	}
}

// dispatch passes one message on. Messages that nobody asked for, or asks for
// any more, are dropped; the rest of them is skipped by the next NextReader.
func (ws *wsSession) dispatch(channel byte, m io.Reader) {
	if channel == channelClose && ws.protocol.halfClose {
		var which [1]byte
		if _, err := io.ReadFull(m, which[:]); err == nil && ws.inputs[which[0]] != nil {
			_ = ws.inputs[which[0]].Close()
		}
		return
	}
	if ws.protocol.base64 {
		channel -= '0'
		m = base64.NewDecoder(base64.StdEncoding, m)
	}
	if w := ws.inputs[channel]; w != nil {
		_, _ = io.Copy(w, m)
	}
}

// output writes to a channel; each write is one message.
func (ws *wsSession) output(channel byte) io.Writer { return &wsOutput{ws, channel} }

type wsOutput struct {
	ws      *wsSession
	channel byte
}

// Write implements io.Writer.
func (o *wsOutput) Write(p []byte) (int, error) {
	if err := o.ws.send(o.channel, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (ws *wsSession) send(channel byte, p []byte) error {
	kind := websocket.BinaryMessage
	m := make([]byte, 1, 1+len(p))
	m[0] = channel
	if ws.protocol.base64 {
		kind = websocket.TextMessage
		m[0] += '0'
		m = base64.StdEncoding.AppendEncode(m, p)
	} else {
		m = append(m, p...)
	}
	ws.writing.Lock()
	defer ws.writing.Unlock()
	return ws.conn.WriteMessage(kind, m)
}

func (ws *wsSession) end(o outcome) {
	ws.hurry()
	if status := o.encode(ws.protocol.jsonStatus); len(status) > 0 {
		_ = ws.send(channelError, status)
	}
	ws.close()
}

// hurry bounds how long the client may take for what is still to be said.
func (ws *wsSession) hurry() {
	ws.writing.Lock()
	defer ws.writing.Unlock()
	_ = ws.conn.SetWriteDeadline(time.Now().Add(delivery))
}

// close tells the client that nothing more comes.
func (ws *wsSession) close() {
	ws.writing.Lock()
	defer ws.writing.Unlock()
	// Not as a control message, for which there is no more time once a deadline has
	// passed, even if there is room.
	_ = ws.conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
}
