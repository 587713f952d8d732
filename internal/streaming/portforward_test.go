package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

func dupFD(t *testing.T, fd int) *os.File {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(n), "dup")
}

// forwarders are the ways that client-go knows to reach a pod's ports.
var forwarders = map[string]func(*url.URL) (httpstream.Dialer, error){
	"SPDY": func(u *url.URL) (httpstream.Dialer, error) {
		transport, upgrader, err := spdy.RoundTripperFor(&restclient.Config{})
		if err != nil {
			return nil, err
		}
		return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u), nil
	},
	"WebSocket": func(u *url.URL) (httpstream.Dialer, error) {
		return portforward.NewSPDYOverWebsocketDialerForStreaming(u, &restclient.Config{})
	},
}

// podServer is a pod with one TCP server.
func podServer(t *testing.T, handle func(*net.TCPConn)) (core *fakeCore, dial Dial, port uint16) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	core = &fakeCore{pod: &pod.Record{ID: "p1", State: pod.Running, Sandbox: pod.Sandbox{NetNS: "/netns/p1"}}}
	dial = func(ctx context.Context, r *pod.Record, port uint16) (net.Conn, error) {
		if r.Sandbox.NetNS != "/netns/p1" {
			return nil, errors.New("wrong network namespace " + r.Sandbox.NetNS)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	}
	return core, dial, uint16(l.Addr().(*net.TCPAddr).Port)
}

// forwardTo opens local ports to the pod and returns the first.
func forwardTo(t *testing.T, s *Server, dialer func(*url.URL) (httpstream.Dialer, error), port uint16) (addr string, stop func()) {
	t.Helper()
	raw, err := s.PortForwardURL(&cri.PortForwardRequest{PodSandboxId: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(raw)
	d, err := dialer(u)
	if err != nil {
		t.Fatal(err)
	}
	stopping, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.NewOnAddressesForStreaming(d, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stopping, ready, io.Discard, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("forward: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("forward: timed out")
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() {
		close(stopping)
		<-ended
	}
}

func TestPortForward(t *testing.T) {
	for name, dialer := range forwarders {
		t.Run(name, func(t *testing.T) {
			core, dial, port := podServer(t, func(c *net.TCPConn) {
				b, _ := io.ReadAll(c) // until the client's half close
				_, _ = fmt.Fprintf(c, "got %d bytes", len(b))
			})
			s := serve(t, core, func(c *Config) { c.Dial = dial })
			addr, stop := forwardTo(t, s, dialer, port)
			defer stop()
			for range 3 {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write(make([]byte, 1<<20))
				_ = c.(*net.TCPConn).CloseWrite()
				b, err := io.ReadAll(c)
				if err != nil || string(b) != "got 1048576 bytes" {
					t.Errorf("got %q and %v", b, err)
				}
				_ = c.Close()
			}
		})
	}
}

func TestPortForwardEndsWithItsClient(t *testing.T) {
	for name, dialer := range forwarders {
		t.Run(name, func(t *testing.T) {
			closed := make(chan struct{})
			core, dial, port := podServer(t, func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "hello")
				_, _ = io.Copy(io.Discard, c)
				close(closed)
			})
			s := serve(t, core, func(c *Config) { c.Dial = dial })
			addr, stop := forwardTo(t, s, dialer, port)
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			stop()
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Fatalf("the pod's connection outlives its client\n%s", stacks())
			}
		})
	}
}

func TestPortForwardTellsWhyNot(t *testing.T) {
	core, _, _ := podServer(t, nil)
	s := serve(t, core, func(c *Config) {
		c.Dial = func(context.Context, *pod.Record, uint16) (net.Conn, error) {
			return nil, errors.New("nothing listens there")
		}
	})
	raw, _ := s.PortForwardURL(&cri.PortForwardRequest{PodSandboxId: "p1"})
	u, _ := url.Parse(raw)
	d, _ := forwarders["SPDY"](u)
	conn, _, err := d.Dial(portForwardProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h := http.Header{streamTypeCanonical: {"error"}, "Port": {"80"}, "Requestid": {"1"}}
	errs, err := conn.CreateStream(h)
	if err != nil {
		t.Fatal(err)
	}
	h.Set(streamTypeHeader, "data")
	if _, err := conn.CreateStream(h); err != nil {
		t.Fatal(err)
	}
	message, _ := io.ReadAll(errs)
	contains(t, string(message), "nothing listens there")
}

// A connection through which bytes go either way keeps the stream.
func TestPortForwardInUseIsNotIdle(t *testing.T) {
	const idle = time.Second
	for name, dialer := range forwarders {
		t.Run(name, func(t *testing.T) {
			core, dial, port := podServer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
			s := serve(t, core, func(c *Config) { c.Dial, c.IdleTimeout = dial, idle })
			addr, stop := forwardTo(t, s, dialer, port)
			defer stop()
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			moved := &gaps{}
			moved.note(0)
			for range 30 {
				if _, err = c.Write([]byte("x")); err == nil {
					_, err = io.ReadFull(c, make([]byte, 1))
				}
				if quiet := moved.note(1); err != nil && quiet < idle {
					t.Fatalf("got %v, and nothing moved for no more than %s", err, quiet)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
}

const streamTypeCanonical = "Streamtype"

func TestPortForwardRefusesBadStreams(t *testing.T) {
	core, dial, _ := podServer(t, nil)
	s := serve(t, core, func(c *Config) { c.Dial = dial })
	raw, _ := s.PortForwardURL(&cri.PortForwardRequest{PodSandboxId: "p1", Port: []int32{80}})
	u, _ := url.Parse(raw)
	d, _ := forwarders["SPDY"](u)
	conn, _, err := d.Dial(portForwardProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, h := range map[string]http.Header{
		"no port":       {streamTypeCanonical: {"data"}},
		"port 0":        {streamTypeCanonical: {"data"}, "Port": {"0"}},
		"port too big":  {streamTypeCanonical: {"data"}, "Port": {"65536"}},
		"another port":  {streamTypeCanonical: {"data"}, "Port": {"81"}},
		"no type":       {"Port": {"80"}},
		"unknown type":  {streamTypeCanonical: {"other"}, "Port": {"80"}},
		"not a number":  {streamTypeCanonical: {"data"}, "Port": {"http"}},
		"negative port": {streamTypeCanonical: {"data"}, "Port": {"-1"}},
	} {
		if _, err := conn.CreateStream(h); err == nil {
			t.Errorf("%s: the stream was taken", name)
		}
	}
}

func TestPortForwardOfHostNetworkPod(t *testing.T) {
	core, dial, port := podServer(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "from the node") })
	core.pod.Sandbox.NetNS = ""
	core.pod.Config.Security.Namespaces.Network = pod.NamespaceNode
	s := serve(t, core, func(c *Config) { c.Dial = dial })
	addr, stop := forwardTo(t, s, forwarders["SPDY"], port)
	defer stop()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || !strings.Contains(string(b), "from the node") {
		t.Errorf("got %q and %v", b, err)
	}
}
