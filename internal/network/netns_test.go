package network_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
	"fairlead.run/internal/pod"
)

func TestMain(m *testing.M) { networktest.Main(m) }

func here(t *testing.T) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ns, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// TestInNetNSLeavesNoThreadBehind runs many at once and then looks at every
// thread of the process.
func TestInNetNSLeavesNoThreadBehind(t *testing.T) {
	networktest.NeedRoot(t)
	home := here(t)
	s := networktest.NewSpace(t)
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := network.InNetNS(s.Path, func() error {
				if ns, _ := os.Readlink("/proc/thread-self/ns/net"); ns == home {
					t.Error("fn ran in the caller's namespace")
				}
				return boom
			})
			if !errors.Is(err, boom) {
				t.Errorf("error %v, want fn's own", err)
			}
		})
	}
	wg.Wait()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 {
		t.Fatal(err)
	}
	// The thread that made the namespace may still be ending.
	networktest.Eventually(t, "all threads to be at home", func() bool {
		return !slices.ContainsFunc(tasks, func(task string) bool {
			ns, err := os.Readlink(task)
			return err == nil && ns != home
		})
	})
}

func TestInNetNSRefusesOtherFiles(t *testing.T) {
	networktest.NeedRoot(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{plain, plain + ".missing"} {
		err := network.InNetNS(path, func() error { return errors.New("fn ran") })
		if !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want not found with the path", path, err)
		}
	}
}

func TestDialInNetNS(t *testing.T) {
	networktest.NeedRoot(t)
	s := networktest.NewSpace(t)
	networktest.LoopbackUp(t, s)
	s.Serve(t, "127.0.0.1:8080", "v4")
	ports := []uint16{8080}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		s.Serve(t, "[::1]:8081", "v6")
		ports = append(ports, 8081)
	}
	for _, port := range ports {
		c, err := network.DialInNetNS(context.Background(), s.Path, port)
		if err != nil {
			t.Fatalf("port %d: %v", port, err)
		}
		buf := make([]byte, 100)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := c.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "v") {
			t.Errorf("port %d: read %q (%v)", port, buf[:n], err)
		}
		if _, ok := c.(interface{ CloseWrite() error }); !ok {
			t.Error("the connection cannot be closed for writing alone")
		}
		_ = c.Close()
	}
	if _, err := network.DialInNetNS(context.Background(), s.Path, 8082); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "port 8082") {
		t.Errorf("port nobody listens on: %v", err)
	}
	if _, err := network.DialInNetNS(context.Background(), s.Path, 0); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("port 0: %v", err)
	}
	if _, err := network.DialInNetNS(context.Background(), "/none", 1); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("no namespace: %v", err)
	}
}

// TestDialInNetNSEndsWithItsContext connects to a listener whose queue is full,
// which answers nothing.
func TestDialInNetNSEndsWithItsContext(t *testing.T) {
	networktest.NeedRoot(t)
	s := networktest.NewSpace(t)
	networktest.LoopbackUp(t, s)
	s.FullListener(t, 8083)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	var held []net.Conn
	for {
		c, err := network.DialInNetNS(ctx, s.Path, 8083)
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			break
		}
		held = append(held, c)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, c := range held {
		_ = c.Close()
	}
}

func TestPodsPassesTheRecordOn(t *testing.T) {
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	pods := network.Pods{Driver: networktest.NewFake(ledger)}
	r := &pod.Record{ID: pod.NewID(), Config: pod.Config{
		Metadata: pod.Metadata{Name: "a", Namespace: "b", UID: "c"},
		Ports:    []pod.PortMapping{{Protocol: "tcp", HostPort: 1, ContainerPort: 2}},
	}, Sandbox: pod.Sandbox{NetNS: "/n"}}
	ips, err := pods.Attach(context.Background(), r)
	if err != nil || len(ips) != 1 {
		t.Fatalf("Attach gave %v (%v)", ips, err)
	}
	e, ok := ledger.Get(r.ID)
	if !ok || e.Request.Metadata != r.Config.Metadata || e.Request.NetNS != "/n" || len(e.Request.Ports) != 1 {
		t.Errorf("the ledger has %+v", e)
	}
	if err := pods.Detach(context.Background(), r.ID); err != nil {
		t.Fatal(err)
	}
}
