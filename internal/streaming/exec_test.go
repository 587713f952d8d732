package streaming

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	spdyclient "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream/spdy"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// transports are the ways that client-go knows to reach a stream.
var transports = map[string]func(string) (remotecommand.Executor, error){
	"SPDY": func(u string) (remotecommand.Executor, error) {
		parsed, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		return remotecommand.NewSPDYExecutor(&restclient.Config{}, "POST", parsed)
	},
	"WebSocket": func(u string) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(&restclient.Config{}, "GET", u)
	},
	"WebSocket v4": func(u string) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutorForProtocols(&restclient.Config{}, "GET", u, "v4.channel.k8s.io")
	},
}

func overEach(t *testing.T, f func(t *testing.T, dial func(string) (remotecommand.Executor, error))) {
	for name, dial := range transports {
		t.Run(name, func(t *testing.T) { f(t, dial) })
	}
}

func shell(script string, r *cri.ExecRequest) *cri.ExecRequest {
	r.ContainerId, r.Cmd = "c1", []string{"/bin/sh", "-c", script}
	return r
}

func stream(t *testing.T, s *Server, dial func(string) (remotecommand.Executor, error), r *cri.ExecRequest, o remotecommand.StreamOptions) error {
	t.Helper()
	u, err := s.ExecURL(r)
	if err != nil {
		t.Fatal(err)
	}
	x, err := dial(u)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return x.StreamWithContext(ctx, o)
}

func TestExecOutputAndExitCode(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		s := serve(t, &fakeCore{}, nil)
		var stdout, stderr bytes.Buffer
		err := stream(t, s, dial, shell("echo out; echo err >&2; exit 42", &cri.ExecRequest{Stdout: true, Stderr: true}),
			remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
		var code exec.CodeExitError
		if !errors.As(err, &code) || code.Code != 42 {
			t.Errorf("got error %v, want exit code 42", err)
		}
		if stdout.String() != "out\n" || stderr.String() != "err\n" {
			t.Errorf("got %q and %q", stdout.String(), stderr.String())
		}
		if err := stream(t, s, dial, shell("true", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: io.Discard}); err != nil {
			t.Errorf("got %v of a command that succeeds", err)
		}
	})
}

func TestExecLargeOutputIsComplete(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		s := serve(t, &fakeCore{}, nil)
		var stdout bytes.Buffer
		err := stream(t, s, dial, shell("head -c 20000000 /dev/zero", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: &stdout})
		if err != nil || stdout.Len() != 20000000 {
			t.Errorf("got %d bytes and %v, want 20000000", stdout.Len(), err)
		}
	})
}

func TestExecStdinHalfClose(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		if strings.Contains(t.Name(), "v4") {
			t.Skip("WebSocket before v5 cannot say that its input has ended")
		}
		s := serve(t, &fakeCore{}, nil)
		in := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
		var stdout bytes.Buffer
		err := stream(t, s, dial, shell("cat; echo end", &cri.ExecRequest{Stdin: true, Stdout: true}),
			remotecommand.StreamOptions{Stdin: bytes.NewReader(in), Stdout: &stdout})
		if err != nil {
			t.Fatal(err)
		}
		if want := string(in) + "end\n"; stdout.String() != want {
			t.Errorf("got %d bytes back, want %d", stdout.Len(), len(want))
		}
	})
}

func TestExecThatDoesNotReadItsInput(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		s := serve(t, &fakeCore{}, nil)
		err := stream(t, s, dial, shell("exit 3", &cri.ExecRequest{Stdin: true, Stdout: true}),
			remotecommand.StreamOptions{Stdin: endless{}, Stdout: io.Discard})
		var code exec.CodeExitError
		if !errors.As(err, &code) || code.Code != 3 {
			t.Errorf("got error %v, want exit code 3", err)
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// sizes is a window that changes its size.
type sizes chan remotecommand.TerminalSize

func (q sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-q
	if !ok {
		return nil
	}
	return &size
}

func TestExecTerminal(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		s := serve(t, &fakeCore{}, nil)
		q := make(sizes, 1)
		defer close(q)
		q <- remotecommand.TerminalSize{Width: 97, Height: 41}
		inR, inW := io.Pipe()
		defer inW.Close()
		go func() { _, _ = io.WriteString(inW, "typed\n") }()
		var stdout bytes.Buffer
		script := `read line; for i in 1 2 3 4 5 6 7 8 9; do [ "$(stty size)" = "41 97" ] && break; sleep 0.1; done; stty size; echo "got $line"; test -t 0 && test -t 1 && exit 7`
		err := stream(t, s, dial, shell(script, &cri.ExecRequest{Stdin: true, Stdout: true, Tty: true}),
			remotecommand.StreamOptions{Stdin: inR, Stdout: &stdout, Tty: true, TerminalSizeQueue: q})
		var code exec.CodeExitError
		if !errors.As(err, &code) || code.Code != 7 {
			t.Errorf("got error %v, want exit code 7", err)
		}
		contains(t, stdout.String(), "41 97\r\n")
		contains(t, stdout.String(), "got typed\r\n")
	})
}

// A client that goes takes the process and all that it started along, whatever
// the two are doing at that time.
func TestExecDiesWithItsClient(t *testing.T) {
	scripts := map[string]string{
		"silent":          "sleep 1000 & echo $! ready; wait",
		"deaf":            "echo $$ ready; exec sleep 1000",
		"ignores signals": "trap '' HUP TERM INT PIPE; echo $$ ready; while :; do sleep 1000; done",
	}
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				core := &fakeCore{}
				s := serve(t, core, nil)
				u, _ := s.ExecURL(shell(script, &cri.ExecRequest{Stdin: true, Stdout: true}))
				u, cut := cuttable(t, u)
				x, err := dial(u)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				out := &waiter{want: "ready", found: make(chan struct{})}
				gone := make(chan struct{})
				inR, inW := io.Pipe()
				defer inW.Close()
				go func() {
					defer close(gone)
					_ = x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: inR, Stdout: out})
				}()
				if name == "deaf" { // and much is on its way to it
					go func() { _, _ = io.Copy(inW, io.LimitReader(endless{}, 64<<20)) }()
				}
				<-out.found
				if name == "deaf" {
					time.Sleep(200 * time.Millisecond) // until it waits in every buffer
					cut()
				} else {
					cancel()
				}
				<-gone
				proc := core.last(t, 1)
				select {
				case <-proc.ended:
				case <-time.After(10 * time.Second):
					t.Fatalf("the process outlives its client\n%s", stacks())
				}
				if !proc.wasKilled() {
					t.Error("the process ended by itself, and was not killed")
				}
				eventually(t, "its children to end", func() bool { return unix.Kill(-proc.cmd.Process.Pid, 0) != nil })
			})
		}
	})
}

// cuttable is the URL by way of a proxy, and a function that ends its
// connections in the middle of whatever they carry.
func cuttable(t *testing.T, raw string) (string, func()) {
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var copies sync.WaitGroup
	ctx, cut := context.WithCancel(context.Background())
	copies.Go(func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Error(err)
			return
		}
		context.AfterFunc(ctx, func() {
			_ = server.(*net.TCPConn).SetLinger(0) // resets: an end would queue behind what cannot be read
			_, _ = client.Close(), server.Close()
		})
		copies.Go(func() { _, _ = io.Copy(client, server); cut() })
		_, _ = io.Copy(server, client)
		cut()
	})
	t.Cleanup(func() {
		_ = l.Close()
		cut()
		copies.Wait()
	})
	out := *u
	out.Host = l.Addr().String()
	return out.String(), cut
}

// waiter is a writer that tells when something was written.
type waiter struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	want  string
	found chan struct{}
	told  bool
}

func (w *waiter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if !w.told && strings.Contains(w.buf.String(), w.want) {
		w.told = true
		close(w.found)
	}
	return len(p), nil
}

func TestExecEndsAlthoughItsOutputIsHeldOpen(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		core := &fakeCore{}
		s := serve(t, core, nil)
		var stdout bytes.Buffer
		start := time.Now()
		err := stream(t, s, dial, shell("sleep 60 & echo done", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: &stdout})
		if err != nil || stdout.String() != "done\n" {
			t.Errorf("got %q and %v", stdout.String(), err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		proc := core.last(t, 1)
		if proc.wasKilled() {
			t.Error("what the command left running was killed; its client had not gone")
		}
		_ = unix.Kill(-proc.cmd.Process.Pid, unix.SIGKILL)
	})
}

func TestIdleStreamEnds(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		core := &fakeCore{}
		s := serve(t, core, func(c *Config) { c.IdleTimeout = 300 * time.Millisecond })
		err := stream(t, s, dial, shell("sleep 1000", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil {
			t.Error("the client was not told that its stream ended")
		}
		<-core.last(t, 1).ended
	})
}

// Clients send pings as long as they live, so that no middleman thinks them idle.
func TestIdleStreamEndsDespitePings(t *testing.T) {
	const idle, ping = 300 * time.Millisecond, 10 * time.Millisecond
	t.Run("SPDY", func(t *testing.T) {
		core := &fakeCore{}
		s := serve(t, core, func(c *Config) { c.IdleTimeout = idle })
		dial := func(raw string) (remotecommand.Executor, error) {
			u, err := url.Parse(raw)
			if err != nil {
				return nil, err
			}
			rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{PingPeriod: ping})
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutorForTransports(rt, spdyclient.NewUpgraderForStreaming(rt), "POST", u)
		}
		err := stream(t, s, dial, shell("sleep 1000", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "no data moved") {
			t.Errorf("got %v", err)
		}
		<-core.last(t, 1).ended
	})
	t.Run("WebSocket", func(t *testing.T) {
		core := &fakeCore{}
		s := serve(t, core, func(c *Config) { c.IdleTimeout = idle })
		raw, err := s.ExecURL(shell("sleep 1000", &cri.ExecRequest{Stdout: true}))
		if err != nil {
			t.Fatal(err)
		}
		d := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}
		c, _, err := d.Dial("ws"+strings.TrimPrefix(raw, "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var pings sync.WaitGroup
		defer pings.Wait()
		pings.Go(func() {
			for c.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Minute)) == nil {
				time.Sleep(ping)
			}
		})
		var said string
		for {
			_, m, err := c.ReadMessage()
			if err != nil {
				break
			}
			said += string(m)
		}
		_ = c.Close()
		contains(t, said, "no data moved")
		<-core.last(t, 1).ended
	})
}

// gaps is a writer that knows the longest time in which it got nothing.
type gaps struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	n       int
}

func (g *gaps) Write(p []byte) (int, error) {
	g.note(len(p))
	return len(p), nil
}

func (g *gaps) note(n int) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.last.IsZero() {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.last = now
	g.n += n
	return g.longest
}

func TestStreamInUseIsNotIdle(t *testing.T) {
	const idle = time.Second
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		s := serve(t, &fakeCore{}, func(c *Config) { c.IdleTimeout = idle })
		out := &gaps{}
		out.note(0)
		err := stream(t, s, dial, shell("for i in $(seq 30); do printf x; sleep 0.05; done", &cri.ExecRequest{Stdout: true}), remotecommand.StreamOptions{Stdout: out})
		if quiet := out.note(0); quiet < idle && (err != nil || out.n != 30) {
			t.Errorf("got %d bytes and %v, and never nothing for more than %s", out.n, err, quiet)
		}
	})
}

func TestServerEndsItsStreams(t *testing.T) {
	core := &fakeCore{}
	s := serve(t, core, nil) // its clean-up checks that everything ends
	u, _ := s.ExecURL(shell("sleep 1000", &cri.ExecRequest{Stdout: true}))
	x, _ := transports["SPDY"](u)
	go func() { _ = x.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdout: io.Discard}) }()
	core.last(t, 1)
	t.Cleanup(func() {}) // the server's own clean-up runs after this
}

func TestExecErrorReachesTheClient(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		s := serve(t, &fakeCore{}, nil)
		err := stream(t, s, dial, &cri.ExecRequest{ContainerId: "gone", Cmd: []string{"x"}, Stdout: true}, remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "container gone") {
			t.Errorf("got %v", err)
		}
	})
}

func TestURLWorksOnce(t *testing.T) {
	s := serve(t, &fakeCore{}, nil)
	u, _ := s.ExecURL(shell("true", &cri.ExecRequest{Stdout: true}))
	if !strings.HasPrefix(u, "http://127.0.0.1:") {
		t.Errorf("the URL is %s, which is not on loopback", u)
	}
	get := func(u string) int {
		resp, err := http.Get(u)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := get(u); got == http.StatusNotFound {
		t.Error("the first use was not found")
	}
	for _, path := range []string{u, s.listenerURL() + "/exec/", s.listenerURL() + "/exec/x", s.listenerURL() + "/", s.listenerURL() + "/exec/%00"} {
		if got := get(path); got != http.StatusNotFound {
			t.Errorf("GET %s: got status %d, want 404", path, got)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestURLExpires(t *testing.T) {
	core := &fakeCore{}
	s := serve(t, core, func(c *Config) { c.OpenTimeout = time.Millisecond })
	for range 2 { // one that nobody used is no hindrance for the next
		u, err := s.ExecURL(shell("true", &cri.ExecRequest{Stdout: true}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		resp, err := http.Get(u)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("got status %d of an old URL, want 404", resp.StatusCode)
		}
	}
	if len(core.execs) != 0 {
		t.Error("the command ran")
	}
	http.DefaultClient.CloseIdleConnections()
}

func (s *Server) listenerURL() string { return "http://" + s.listener.Addr().String() }

func TestStreamsThatNeverComeTimeOut(t *testing.T) {
	core := &fakeCore{}
	s := serve(t, core, func(c *Config) { c.StreamTimeout = 100 * time.Millisecond })
	// The client opens two streams, and three are expected.
	err := stream(t, s, transports["SPDY"], shell("true", &cri.ExecRequest{Stdin: true, Stdout: true}), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil {
		t.Error("a client that opens too few streams got an answer")
	}
	if len(core.execs) != 0 {
		t.Error("the command ran")
	}
}

func TestPollable(t *testing.T) {
	master, slave, err := openPTY()
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer slave.Close()
	f, err := pollable(master)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := f.Read(make([]byte, 1))
		read <- err
	}()
	time.Sleep(20 * time.Millisecond)
	_ = f.Close()
	if err := <-read; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
