package image_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

// TestPullHangsUp wants no connection left of a pull, whether it succeeded or
// failed: the next one has its own.
func TestPullHangsUp(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	pull(t, s, reg.Push("a:1", simple(t, "x")))
	for range 3 {
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Host() + "/nobody/pushed:1"}); err == nil {
			t.Fatal("an image was pulled that is not there")
		}
	}
	// The library keeps them for half a minute, and closing takes a moment.
	const moment = 15 * time.Second
	for end := time.Now().Add(moment); connections(t, reg.Host()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d ends of connections with the registry are open", connections(t, reg.Host()))
		}
	}
}

// TestPullConnectsOnce fails if the halves of a pull, the resolving and the
// fetching, each connect for themselves.
func TestPullConnectsOnce(t *testing.T) {
	reg := newRegistry(t)
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(reg)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	host := srv.Listener.Addr().String()
	cfg := config(t)
	dir := filepath.Join(cfg.CertsDirs[0], host)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	hosts := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+host)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	reg.Push("a:1", build(t, images.Spec{Layers: []images.Layer{file("x", "x")}}))
	pull(t, openSynced(t, cfg), host+"/a:1")
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for one image of one layer", n)
	}
}

// connections counts those that are open with a server on this host, each end by
// itself.
func connections(t *testing.T, address string) (count int) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const established = "01"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		end := fmt.Sprintf(":%04X", number)
		if f[3] == established && (strings.HasSuffix(f[1], end) || strings.HasSuffix(f[2], end)) {
			count++
		}
	}
	return count
}
