package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	spdyclient "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// transports are the ways that client-go knows to open a session.
var transports = map[string]func(string) (remotecommand.Executor, error){
	"SPDY": func(u string) (remotecommand.Executor, error) {
		parsed, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		return remotecommand.NewSPDYExecutor(&restclient.Config{BearerToken: "secret"}, "POST", parsed)
	},
	"WebSocket": func(u string) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(&restclient.Config{BearerToken: "secret"}, "GET", u)
	},
}

func overEach(t *testing.T, f func(t *testing.T, dial func(string) (remotecommand.Executor, error))) {
	for name, dial := range transports {
		t.Run(name, func(t *testing.T) { f(t, dial) })
	}
}

func session(t *testing.T, dial func(string) (remotecommand.Executor, error), u string, o remotecommand.StreamOptions) error {
	t.Helper()
	x, err := dial(u)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	return x.StreamWithContext(ctx, o)
}

func TestExec(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		n := serveNode(t, nil)
		in := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
		var stdout bytes.Buffer
		err := session(t, dial, n.url+"/exec/default/web/up?input=1&output=1&command=cat&command=-u", remotecommand.StreamOptions{Stdin: bytes.NewReader(in), Stdout: &stdout})
		if err != nil || stdout.String() != string(in)+"end\n" {
			t.Fatalf("%v, %d bytes back, want %d", err, stdout.Len(), len(in)+4)
		}
		r, ok := n.runtime.last(t).(*runtimeapi.ExecRequest)
		if !ok || r.ContainerId != "up-1" || strings.Join(r.Cmd, " ") != "cat -u" || !r.Stdin || !r.Stdout || r.Stderr || r.Tty {
			t.Errorf("the runtime was asked for %v", r)
		}
		n.streams.mu.Lock()
		defer n.streams.mu.Unlock()
		if h := n.streams.headers[0]; h.Get("Authorization") != "" || h.Get("Upgrade") == "" {
			t.Errorf("the runtime got %v", h)
		}
	})
}

func TestExecExitCode(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		n := serveNode(t, nil)
		var stderr bytes.Buffer
		err := session(t, dial, n.url+"/exec/default/web/u1/up?output=1&error=1&command=fail", remotecommand.StreamOptions{Stdout: io.Discard, Stderr: &stderr})
		var code exec.CodeExitError
		if !errors.As(err, &code) || code.Code != 42 || stderr.String() != "err\n" {
			t.Errorf("got %v, %q", err, stderr.String())
		}
	})
}

// TestTooManyStreams tells the caller to try again when a runtime keeps no more streams.
func TestTooManyStreams(t *testing.T) {
	n := serveNode(t, func(_ *Config, f *fakeRuntime) {
		f.err = status.Error(codes.ResourceExhausted, "too many streams wait")
	})
	r := httptest.NewRequest("POST", "/exec/default/web/up?output=1&command=date", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	w := httptest.NewRecorder()
	n.ServeHTTP(w, r)
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "too many streams wait") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestExecOfLongCommand has a script of 200 KB as an argument, which is a part of the URL.
func TestExecOfLongCommand(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		n := serveNode(t, nil)
		script := strings.Repeat("0123456789", 20_000)
		if err := session(t, dial, n.url+"/exec/default/web/up?input=1&output=1&command=cat&command="+script, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard}); err != nil {
			t.Fatalf("%.300v", err)
		}
		if r, ok := n.runtime.last(t).(*runtimeapi.ExecRequest); !ok || len(r.Cmd) != 2 || r.Cmd[1] != script {
			t.Error("the runtime was asked for something else")
		}
	})
}

type counted int

func (c *counted) Write(b []byte) (int, error) {
	*c += counted(len(b))
	return len(b), nil
}

func TestExecThatFloods(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		n := serveNode(t, nil)
		var got counted
		if err := session(t, dial, n.url+"/exec/default/web/up?output=1&error=1&command=flood", remotecommand.StreamOptions{Stdout: &got, Stderr: io.Discard}); err != nil || got != flood {
			t.Errorf("%v, %d bytes, want %d", err, got, flood)
		}
	})
}

func TestAttach(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		n := serveNode(t, nil)
		var stdout bytes.Buffer
		err := session(t, dial, n.url+"/attach/default/web/debugger?input=1&output=1&error=1&tty=1", remotecommand.StreamOptions{Stdin: strings.NewReader("hello\n"), Stdout: &stdout})
		if err != nil || stdout.String() != "hello\nend\n" {
			t.Errorf("%v %q", err, stdout.String())
		}
		if r, ok := n.runtime.last(t).(*runtimeapi.AttachRequest); !ok || r.ContainerId != "debugger-0" || !r.Tty || r.Stderr || !r.Stdin {
			t.Errorf("the runtime was asked for %v", r)
		}
	})
}

func TestRefusalsOfARuntimeArePassedOn(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		n := serveNode(t, nil)
		err := session(t, dial, n.url+"/exec/default/web/up?output=1&command=refuse", remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "no such stream: its URL works once") {
			t.Errorf("got %v", err)
		}
		err = session(t, dial, n.url+"/exec/default/web/up?output=1&command=plain", remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "answered with status 200") {
			t.Errorf("got %v", err)
		}
	})
}

// Who leaves in the middle takes the runtime's session along.
func TestSessionEndsWithItsClient(t *testing.T) {
	overEach(t, func(t *testing.T, dial func(string) (remotecommand.Executor, error)) {
		n := serveNode(t, nil)
		x, err := dial(n.url + "/exec/default/web/up?input=1&output=1&command=wait")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		in, out := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard})
		}()
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
		_ = out.Close()
		n.streams.open.Wait()
	})
}

// The server that ends takes its sessions along; that Serve returns is looked at
// when the test ends.
func TestSessionEndsWithTheServer(t *testing.T) {
	n := serveNode(t, nil)
	x, err := transports["SPDY"](n.url + "/exec/default/web/up?input=1&output=1&command=wait")
	if err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- x.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard})
	}()
	if _, err := out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // runs first
		go func() {
			<-done
			_ = out.Close()
		}()
	})
}

func TestPortForward(t *testing.T) {
	n := serveNode(t, nil)
	u, err := url.Parse(n.url + "/portForward/default/web")
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdyclient.RoundTripperFor(&restclient.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(spdyclient.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u), []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	<-ready
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", ports[0].Local))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != "port 80: hello" {
			t.Errorf("%q %v", got, err)
		}
		_ = conn.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r, ok := n.runtime.last(t).(*runtimeapi.PortForwardRequest); !ok || r.PodSandboxId != "s1" {
		t.Errorf("the runtime was asked for %v", r)
	}
}

func TestStreamsRefuse(t *testing.T) {
	n := serveNode(t, nil)
	for _, tt := range []struct {
		method, path string
		upgrade      bool
		code         int
		text         string
	}{
		{"GET", "/exec/default/web/up?output=1&command=x", false, 400, "Upgrade request required"},
		{"HEAD", "/exec/default/web/up?output=1&command=x", false, 400, ""},
		{"PUT", "/exec/default/web/up?output=1&command=x", true, 405, "Method Not Allowed"},
		{"POST", "/exec/default/web/up?command=x", true, 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"POST", "/exec/default/web/up?output=0&error=false&command=x", true, 400, "you must specify at least 1"},
		{"POST", "/exec/default/web/up?error=1&tty=1&command=x", true, 400, "you must specify at least 1"},
		{"POST", "/exec/default/web/up?output=1", true, 400, "you must specify a command"},
		{"POST", "/exec/default/other/up?output=1&command=x", true, 404, "pod does not exist"},
		{"POST", "/exec/default/web/u9/up?output=1&command=x", true, 404, "with uid u9"},
		{"POST", "/exec/default/web/nobody?output=1&command=x", true, 404, `container not found ("nobody")`},
		{"POST", "/exec/default/web/done?output=1&command=x", true, 500, `container not found ("done"): it has ended with exit code 3`},
		{"POST", "/attach/default/web/pulling?output=1", true, 500, `container not found ("pulling"): it is waiting to start: ImagePullBackOff`},
		{"POST", "/attach/default/web/unseen?output=1", true, 500, `container not found ("unseen"): it does not run yet`},
		{"POST", "/portForward/default/web?port=0", true, 400, "no number from 1 to 65535"},
		{"POST", "/portForward/default/web?port=80,x", true, 400, "no number from 1 to 65535"},
		{"POST", "/portForward/default/gone", true, 404, "pod does not exist"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, n.url+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.upgrade {
			r.Header.Set("Connection", "keep-alive, Upgrade")
			r.Header.Set("Upgrade", "SPDY/3.1")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.code || !strings.Contains(string(body), tt.text) {
			t.Errorf("%s %s: %d %q, want %d %q", tt.method, tt.path, resp.StatusCode, body, tt.code, tt.text)
		}
	}
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	if len(n.runtime.requests) != 0 {
		t.Errorf("the runtime was asked: %v", n.runtime.requests)
	}
}

func TestPodWithoutSandbox(t *testing.T) {
	n := serveNode(t, func(_ *Config, f *fakeRuntime) { f.sandbox = nil })
	r, err := http.NewRequestWithContext(t.Context(), "POST", n.url+"/portForward/default/web", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || !strings.Contains(string(body), "has no sandbox that is up") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

// raw is a backend that speaks no HTTP after its first answer.
func raw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

// rawUpgrade opens a session by hand, with bytes that come along with the request.
func rawUpgrade(t *testing.T, n *node, early string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /exec/default/web/up?input=1&output=1&command=x HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: test\r\nContent-Length: 0\r\n\r\n%s", early)
	return c.(*net.TCPConn)
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n"

// The output that comes after the input has ended is not cut off, and what both
// sides send at once with the upgrade is not lost.
func TestHalfCloseIsPassedOn(t *testing.T) {
	n := serveNode(t, func(_ *Config, f *fakeRuntime) {
		f.streams = raw(t, func(c net.Conn) {
			buf := make([]byte, 4096)
			if _, err := c.Read(buf); err != nil {
				return
			}
			fmt.Fprint(c, switching+"early answer;")
			in, _ := io.ReadAll(c) // to the end of the input
			fmt.Fprintf(c, "got %d;", len(in))
		})
	})
	c := rawUpgrade(t, n, "early")
	if _, err := c.Write([]byte(" and late")); err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(c)
	if resp, err := http.ReadResponse(from, nil); err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "test" {
		t.Fatalf("%+v %v", resp, err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(from); err != nil || string(got) != "early answer;got 14;" {
		t.Errorf("%q %v", got, err)
	}
	_ = c.Close()
}

func TestBackendsThatAreNone(t *testing.T) {
	for name, tt := range map[string]struct {
		streams string
		want    string
	}{
		"no host":   {"/only/a/path", "is no address that can be opened"},
		"no scheme": {"unix://host/x", "only by http and https"},
		"not there": {"http://127.0.0.1:1", "connection refused"},
		"ends":      {raw(t, func(net.Conn) {}), "ask 127.0.0.1:"},
		"says more than a header can hold": {raw(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nX: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}), "ask 127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			n := serveNode(t, func(_ *Config, f *fakeRuntime) { f.streams = tt.streams })
			c := rawUpgrade(t, n, "")
			defer func() { _ = c.Close() }()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 500 || !strings.Contains(string(got), tt.want) {
				t.Errorf("%d %q", resp.StatusCode, got)
			}
		})
	}
}

func TestStreamsAreBounded(t *testing.T) {
	n := serveNode(t, func(c *Config, f *fakeRuntime) {
		c.Limits.Streams = 1
		f.streams = raw(t, func(c net.Conn) {
			buf := make([]byte, 4096)
			_, _ = c.Read(buf)
			fmt.Fprint(c, switching)
			_, _ = io.Copy(io.Discard, c)
		})
	})
	first := rawUpgrade(t, n, "")
	buf := make([]byte, len("HTTP/1.1 101 "))
	if _, err := io.ReadFull(first, buf); err != nil || string(buf) != "HTTP/1.1 101 " {
		t.Fatalf("%q %v", buf, err)
	}
	second := rawUpgrade(t, n, "")
	if _, err := io.ReadFull(second, buf); err != nil || string(buf) != "HTTP/1.1 429 " {
		t.Errorf("%q %v", buf, err)
	}
	_ = second.Close()
	if code, _ := n.get(t, "GET", "/healthz"); code != 200 {
		t.Errorf("health is %d while streams are used up", code)
	}
	_ = first.Close()
}

// TestStreamOverTLS has both kinds of clients behind TLS, where HTTP/2 is spoken
// otherwise.
func TestStreamOverTLS(t *testing.T) {
	n := serveNode(t, nil)
	cert := selfSigned(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- n.Serve(ctx, l, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }, MinVersion: tls.VersionTLS12})
	}()
	base := "https://" + l.Addr().String()
	config := &restclient.Config{TLSClientConfig: restclient.TLSClientConfig{Insecure: true}}
	for name, dial := range map[string]func(u string) (remotecommand.Executor, error){
		"SPDY": func(u string) (remotecommand.Executor, error) {
			parsed, err := url.Parse(u)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutor(config, "POST", parsed)
		},
		"WebSocket": func(u string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(config, "GET", u)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout bytes.Buffer
			if err := session(t, dial, base+"/exec/default/web/up?input=1&output=1&command=cat", remotecommand.StreamOptions{Stdin: strings.NewReader("x"), Stdout: &stdout}); err != nil || stdout.String() != "xend\n" {
				t.Errorf("%v %q", err, stdout.String())
			}
		})
	}
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Get(base + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Errorf("spoke %s", resp.Proto)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
