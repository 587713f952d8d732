package streaming

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dialPorts opens channels for ports, as clients in browsers do.
func dialPorts(t *testing.T, s *Server, protocol string, ports ...int32) *websocket.Conn {
	t.Helper()
	raw, err := s.PortForwardURL(&cri.PortForwardRequest{PodSandboxId: "p1", Port: ports})
	if err != nil {
		t.Fatal(err)
	}
	var d websocket.Dialer
	if protocol != "" {
		d.Subprotocols = []string{protocol}
	}
	c, _, err := d.Dial("ws"+strings.TrimPrefix(raw, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if c.Subprotocol() != protocol {
		t.Errorf("the server speaks %q", c.Subprotocol())
	}
	return c
}

// receive is what comes by each channel until the server closes.
func receive(t *testing.T, c *websocket.Conn, inText bool) map[byte]string {
	t.Helper()
	got := map[byte]string{}
	for {
		_, m, err := c.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Error(err)
			}
			return got
		}
		channel, body := m[0], m[1:]
		if inText {
			channel -= '0'
			body, _ = base64.StdEncoding.DecodeString(string(body))
		}
		got[channel] += string(body)
	}
}

// TestPortsByChannels forwards two ports by the protocols that clients in other languages than Go
// speak; nothing listens on the second.
func TestPortsByChannels(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := uint16(closed.Addr().(*net.TCPAddr).Port)
	_ = closed.Close()
	for _, protocol := range []string{"", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			core, dial, port := podServer(t, func(c *net.TCPConn) {
				word := make([]byte, 4)
				_, _ = io.ReadFull(c, word)
				_, _ = c.Write([]byte("got " + string(word)))
			})
			s := serve(t, core, func(c *Config) { c.Dial = dial })
			c := dialPorts(t, s, protocol, int32(port), int32(nobody))
			inText := strings.Contains(protocol, "base64")
			kind, message := websocket.BinaryMessage, []byte("\x00ping")
			if inText {
				kind, message = websocket.TextMessage, []byte("0"+base64.StdEncoding.EncodeToString([]byte("ping")))
			}
			if err := c.WriteMessage(kind, message); err != nil {
				t.Fatal(err)
			}
			got := receive(t, c, inText)
			first, second := string(binary.LittleEndian.AppendUint16(nil, port)), string(binary.LittleEndian.AppendUint16(nil, nobody))
			if got[0] != first+"got ping" || got[1] != first || got[2] != second || !strings.HasPrefix(got[3], second) || !strings.Contains(got[3], "connection refused") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestPortsOfClientThatGoes closes the connection to the pod when the client has gone.
func TestPortsOfClientThatGoes(t *testing.T) {
	ended := make(chan struct{})
	core, dial, port := podServer(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	s := serve(t, core, func(c *Config) { c.Dial = dial })
	_ = dialPorts(t, s, "v4.channel.k8s.io", int32(port)).Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the pod's connection stays")
	}
}

// TestChannelsNeedPorts refuses channels without ports, which the tunnel does not need.
func TestChannelsNeedPorts(t *testing.T) {
	core, dial, _ := podServer(t, func(*net.TCPConn) {})
	s := serve(t, core, func(c *Config) { c.Dial = dial })
	for _, ports := range [][]int32{nil, {70000}, make([]int32, 200)} {
		raw, err := s.PortForwardURL(&cri.PortForwardRequest{PodSandboxId: "p1", Port: ports})
		if err != nil {
			t.Fatal(err)
		}
		d := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}
		_, resp, err := d.Dial("ws"+strings.TrimPrefix(raw, "http"), nil)
		if err == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %v %v", ports, resp, err)
		}
	}
}
