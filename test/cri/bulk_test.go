package cri

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"

	"fairlead.run/test/node"
)

// bulk is how much goes through a stream in these tests, in bytes.
const bulk = 100 << 20

// random writes a file of that size and returns its folder and its digest.
func random(t *testing.T) (dir string, sum [sha256.Size]byte) {
	t.Helper()
	dir = hostDir(t)
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, h), rand.NewChaCha8([32]byte{}), bulk)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, [sha256.Size]byte(h.Sum(nil))
}

// long lasts as long as much data may take on a busy machine.
func long(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*node.Patience)
	t.Cleanup(cancel)
	return ctx
}

// What goes in and what comes out arrives as it was sent, and what is said on the
// other output comes apart from that.
func TestMuchGoesThroughAnExec(t *testing.T) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	dir, want := random(t)
	cfg := node.Script("sleep 10000")
	mounts(&runtimeapi.Mount{HostPath: dir, ContainerPath: "/from", Readonly: true})(cfg)
	c := n.RunPod("crun").Start(cfg)
	for name, dial := range node.Executors {
		e, err := dial(c.ExecURL(&runtimeapi.ExecRequest{
			Cmd: []string{"sh", "-c", fmt.Sprintf("head -c %d | cmp - /from/big && cat /from/big && echo apart >&2; exit 3", bulk)}, Stdin: true, Stdout: true, Stderr: true,
		}))
		if err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(filepath.Join(dir, "big"))
		if err != nil {
			t.Fatal(err)
		}
		out, errOut := sha256.New(), &node.Buffer{}
		err = e.StreamWithContext(long(t), remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errOut})
		_ = in.Close()
		var code utilexec.CodeExitError
		if !errors.As(err, &code) || code.Code != 3 {
			t.Errorf("%s: %v", name, err)
		}
		if got := [sha256.Size]byte(out.Sum(nil)); got != want || errOut.String() != "apart\n" {
			t.Errorf("%s: what came out has the digest %x, not %x; stderr %q", name, got, want, errOut)
		}
	}
}

func TestMuchGoesThroughAForwardedPort(t *testing.T) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	dir, want := random(t)
	s := n.RunPod("crun")
	cfg := node.Script("httpd -f -p 127.0.0.1:8080 -h /from")
	mounts(&runtimeapi.Mount{HostPath: dir, ContainerPath: "/from", Readonly: true})(cfg)
	c := s.Start(cfg)
	c.Exec("sh", "-c", "until wget -qO- http://127.0.0.1:8080/file; do sleep 0.1; done")
	for name, dialer := range forwarders {
		addr, stop := forwardTo(t, s, dialer, 8080)
		r, err := http.NewRequestWithContext(long(t), "GET", "http://"+addr+"/big", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h := sha256.New()
		size, err := io.Copy(h, resp.Body)
		_ = resp.Body.Close()
		if got := [sha256.Size]byte(h.Sum(nil)); err != nil || got != want {
			t.Errorf("%s: %d bytes and %v, with the digest %x, not %x", name, size, err, got, want)
		}
		stop()
	}
}

// forwarders are the ways to the URL of a port-forward.
var forwarders = map[string]func(*url.URL) (httpstream.Dialer, error){
	"spdy": func(u *url.URL) (httpstream.Dialer, error) {
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
		if err != nil {
			return nil, err
		}
		return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u), nil
	},
	"websocket": func(u *url.URL) (httpstream.Dialer, error) {
		return portforward.NewSPDYOverWebsocketDialerForStreaming(u, &rest.Config{})
	},
}

// forwardTo opens a local port to one of the pod.
func forwardTo(t *testing.T, s *node.Sandbox, dialer func(*url.URL) (httpstream.Dialer, error), port int32) (addr string, stop func()) {
	t.Helper()
	n := s.Node
	r, err := n.Runtime.PortForward(n.Ctx(), &runtimeapi.PortForwardRequest{PodSandboxId: s.ID, Port: []int32{port}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.Url)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dialer(u)
	if err != nil {
		t.Fatal(err)
	}
	stopping, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	fw, err := portforward.NewOnAddressesForStreaming(d, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stopping, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- fw.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	case <-long(t).Done():
		t.Fatal("not ready")
	}
	ports, err := fw.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() {
		close(stopping)
		<-done
	}
}
