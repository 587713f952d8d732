package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// end is the runtime's end of a tunnel.
type end struct {
	conn          httpstream.Connection
	data, failure httpstream.Stream
}

// runtimeOf serves one tunnel after the other, and says where.
func runtimeOf(t *testing.T, serve func(end)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{portForwardProtocol}); err != nil {
			t.Error(err)
			return
		}
		streams := make(chan httpstream.Stream, 2)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(st httpstream.Stream, replied <-chan struct{}) error {
			go func() {
				<-replied
				streams <- st
			}()
			return nil
		})
		if conn == nil {
			t.Error("no upgrade")
			return
		}
		defer conn.Close()
		e := end{conn: conn}
		for range 2 {
			st := <-streams
			if got := st.Headers().Get(portHeader); got != "80" {
				t.Errorf("port %q", got)
			}
			if st.Headers().Get(streamType) == "error" {
				e.failure = st
			} else {
				e.data = st
			}
		}
		serve(e)
		<-conn.CloseChan()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// pipe is a TCP connection, both ends of it.
func pipe(t *testing.T) (outer, inner *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = a.Close()
	})
	return c.(*net.TCPConn), a.(*net.TCPConn)
}

// begin carries inner in the background.
func begin(ctx context.Context, url string, inner net.Conn) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- Tunnel(ctx, url, 80, inner) }()
	return ended
}

// TestTunnelCarriesBothWays has either end be the first to have said all.
func TestTunnelCarriesBothWays(t *testing.T) {
	asked := bytes.Repeat([]byte("question "), 100_000)
	for _, podFirst := range []bool{false, true} {
		got := make(chan int, 1)
		url := runtimeOf(t, func(e end) {
			if podFirst {
				_, _ = io.WriteString(e.data, "hello")
				_ = e.data.Close()
				_ = e.failure.Close()
			}
			text, _ := io.ReadAll(e.data)
			got <- len(text)
			if !podFirst {
				_, _ = fmt.Fprintf(e.data, "hello")
				_ = e.data.Close()
				_ = e.failure.Close()
			}
		})
		outer, inner := pipe(t)
		ended := begin(t.Context(), url, inner)
		answer := make(chan string, 1)
		read := func() {
			text, _ := io.ReadAll(outer)
			answer <- string(text)
		}
		if podFirst {
			read()
		} else {
			go read()
		}
		if _, err := outer.Write(asked); err != nil {
			t.Fatal(err)
		}
		_ = outer.CloseWrite()
		if text, n := <-answer, <-got; text != "hello" || n != len(asked) {
			t.Errorf("the pod first: %v; %q came back, and %d bytes arrived of %d", podFirst, text, n, len(asked))
		}
		if err := <-ended; err != nil {
			t.Errorf("the pod first: %v; %v", podFirst, err)
		}
	}
}

// TestTunnelTellsWhyNot also when the local end has said all that it will.
func TestTunnelTellsWhyNot(t *testing.T) {
	for _, closed := range []bool{false, true} {
		url := runtimeOf(t, func(e end) {
			if closed {
				_, _ = io.ReadAll(e.data)
			}
			_, _ = io.WriteString(e.failure, "connection refused")
			_ = e.failure.Close()
			_ = e.data.Reset()
		})
		outer, inner := pipe(t)
		ended := begin(t.Context(), url, inner)
		if closed {
			_ = outer.CloseWrite()
		}
		if err := <-ended; err == nil || err.Error() != "connection refused" {
			t.Errorf("closed %v: %v", closed, err)
		}
		if _, err := outer.Read(make([]byte, 1)); err == nil {
			t.Error("the local end stays open")
		}
	}
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	_, inner := pipe(t)
	if err := Tunnel(t.Context(), refusing.URL, 80, inner); err == nil || !strings.Contains(err.Error(), "connect to the stream") {
		t.Errorf("an address that is good no more: %v", err)
	}
}

// TestTunnelEnds with its context, with the runtime, and with a local end that breaks.
func TestTunnelEnds(t *testing.T) {
	url := runtimeOf(t, func(e end) { _, _ = io.WriteString(e.data, "hello") })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outer, inner := pipe(t)
	ended := begin(ctx, url, inner)
	if _, err := io.ReadFull(outer, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := outer.Read(make([]byte, 1)); err == nil {
		t.Error("the local end stays open")
	}

	outer, inner = pipe(t)
	ended = begin(t.Context(), runtimeOf(t, func(e end) { _ = e.conn.Close() }), inner)
	if err := <-ended; err != nil {
		t.Errorf("a runtime that goes: %v", err)
	}
	if _, err := outer.Read(make([]byte, 1)); err == nil {
		t.Error("the local end stays open")
	}

	outer, inner = pipe(t)
	ended = begin(t.Context(), runtimeOf(t, func(e end) { // it talks on until nobody listens
		for {
			if _, err := e.data.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	}), inner)
	if _, err := io.ReadFull(outer, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_ = outer.SetLinger(0)
	_ = outer.Close()
	if err := <-ended; err != nil {
		t.Errorf("a local end that breaks: %v", err)
	}
}
