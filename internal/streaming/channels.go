package streaming

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// maxChannelPorts is how many ports there are channels for: two each, and a number has one byte.
const maxChannelPorts = 127

// channelPort says which protocols have channels for ports: those that clients in browsers and in
// other languages than Go speak, and that API servers pass on as they are.
func channelPort(protocol string) bool {
	switch protocol {
	case "", "v4.channel.k8s.io", "v4.base64.channel.k8s.io":
		return true
	}
	return false
}

// openForwardWebSocket takes the connection over for the tunnel of SPDY or for channels of ports.
func openForwardWebSocket(u *upgrade, r *http.Request, ports []int32) (*websocket.Conn, error) {
	none := len(ports) == 0 || len(ports) > maxChannelPorts || slices.ContainsFunc(ports, func(p int32) bool { return p < 1 || p > math.MaxUint16 })
	if none && !asksForTunnel(r) {
		text := fmt.Sprintf("the ports asked for are %.200v; over WebSockets it must be 1 to %d of them", ports, maxChannelPorts)
		http.Error(u, text, http.StatusBadRequest)
		return nil, errors.New(text)
	}
	return upgradeWebSocket(u, r, func(p string) bool { return p == tunnelProtocol || !none && channelPort(p) })
}

// serveChannels forwards one connection to each port, which begins at once, until all have ended.
// Of a port, the first channel has the data and the second what went wrong; both begin with its number.
func (s *Server) serveChannels(ctx context.Context, u *upgrade, conn *websocket.Conn, req *cri.PortForwardRequest) {
	ws := &wsSession{conn: conn, protocol: wsProtocols[conn.Subprotocol()], inputs: map[byte]*io.PipeWriter{}}
	pairs := make([]*pair, 0, len(req.GetPort()))
	for i, n := range req.GetPort() {
		first := byte(2 * i)
		p := &pair{
			port: uint16(n), link: u.link, //nolint:gosec // openForwardWebSocket has looked
			data: &channelStream{Writer: ws.output(first), in: ws.input(first)},
			err:  &channelStream{Writer: ws.output(first + 1)},
		}
		begin := binary.LittleEndian.AppendUint16(nil, p.port)
		for _, to := range []io.Writer{p.data, p.err} {
			_, _ = to.Write(begin) // who is gone is noticed by the reading
		}
		pairs = append(pairs, p)
	}
	read := make(chan struct{})
	var receiving, forwarding sync.WaitGroup
	receiving.Go(func() {
		defer close(read)
		ws.receive()
	})
	for _, p := range pairs {
		forwarding.Go(func() { s.forwardPair(ctx, pod.ID(req.GetPodSandboxId()), p) })
	}
	forwarding.Wait()
	ws.hurry()
	ws.close()
	leave(ctx, u.link, read)
	u.close() // ends the reading
	receiving.Wait()
}

// channelStream is a channel in the place of a stream of SPDY. Nothing of the protocol says that one
// of its directions has ended, so that both end together.
type channelStream struct {
	io.Writer
	in *io.PipeReader // nil for one that is only written to
}

var _ httpstream.Stream = (*channelStream)(nil)

// Read implements io.Reader.
func (c *channelStream) Read(p []byte) (int, error) {
	if c.in == nil {
		return 0, io.EOF
	}
	return c.in.Read(p)
}

// Close implements io.Closer.
func (c *channelStream) Close() error {
	if c.in == nil {
		return nil
	}
	return c.in.Close()
}

// Reset implements httpstream.Stream.
func (c *channelStream) Reset() error { return c.Close() }

// Headers implements httpstream.Stream; there are none.
func (c *channelStream) Headers() http.Header { return nil }

// Identifier implements httpstream.Stream; nobody asks for it.
func (c *channelStream) Identifier() uint32 { return 0 }
