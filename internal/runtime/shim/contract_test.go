package shim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci"
	"fairlead.run/internal/runtime/runtimetest"
	"fairlead.run/test/hostprep"
)

// built is where the programs are that the tests need root for.
var built string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run()
	}
	release, err := hostprep.Cgroups()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare cgroups:", err)
		return 1
	}
	defer release()
	if built, err = os.MkdirTemp("", "fairlead-shim"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(built)
	for _, program := range []string{"fairlead.run/cmd/fairlead-monitor", "./testdata/fake"} {
		build := exec.Command("go", "build", "-tags", "grpcnotrace nri_no_wasm", "-o", built+"/", program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", program, err, out)
			return 1
		}
	}
	defer removeParent()
	return m.Run()
}

// removeParent removes the cgroup that the containers of the contract share.
func removeParent() {
	for _, pattern := range []string{"/sys/fs/cgroup/fairlead-test", "/sys/fs/cgroup/*/fairlead-test"} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			_ = os.Remove(dir)
		}
	}
}

// host is a monitor of the test's own, and drivers on its state directory.
type host struct {
	state   string
	monitor *client.Client
}

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	state, err := os.MkdirTemp("/run", "fairlead-shim-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	m, err := client.Ensure(t.Context(), client.Options{StateDir: state, Binary: filepath.Join(built, "fairlead-monitor"), Cgroup: client.NoCgroup})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if list, err := m.List(ctx); err != nil || len(list) > 0 {
			t.Errorf("left with the monitor: %+v (%v)", list, err)
		}
		if err := m.Shutdown(ctx, true); err != nil {
			t.Error(err)
		}
	})
	return &host{state, m}
}

// drivers makes those of the real daemon.
func (h *host) drivers(t *testing.T) (*Driver, *oci.Driver) {
	t.Helper()
	d, err := New(Config{StateDir: h.state, Monitor: filepath.Join(built, "fairlead-monitor")})
	if err != nil {
		t.Fatal(err)
	}
	o, err := oci.New(oci.Config{StateDir: h.state, Monitor: h.monitor, StandIn: filepath.Join(built, "fairlead-monitor"), Adapt: d.Adapter})
	if err != nil {
		t.Fatal(err)
	}
	return d, o
}

// registry makes the real registry for one handler.
func (h *host) registry(t *testing.T, c v1alpha1.Handler) *runtime.Registry[*oci.Handler] {
	t.Helper()
	d, o := h.drivers(t)
	kinds := map[string]runtime.Kind[*oci.Handler]{runtime.KindShim: Kind(d, o, func(h *oci.Handler) *oci.Handler { return h })}
	r, err := runtime.New(runtime.Config{Wanted: runtime.Wanted{Handlers: map[string]v1alpha1.Handler{"shim": c}}}, kinds)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// runcShim is containerd's.
func runcShim(t *testing.T) v1alpha1.Handler {
	t.Helper()
	return v1alpha1.Handler{Type: runtime.KindShim, RuntimeType: v1alpha1.RuncShim, Path: program(t, "containerd-shim-runc-v2")}
}

// program finds one that make test builds.
func program(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("FAIRLEAD_TEST_SHIMS"); dir != "" {
		return filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not on PATH, and FAIRLEAD_TEST_SHIMS names no folder with it; make test builds it", name)
	}
	return path
}

func TestContractRunc(t *testing.T) {
	h := newHost(t)
	c := runcShim(t)
	open := func(t *testing.T) runtimetest.Handler {
		handler, err := h.registry(t, c).Get("shim")
		if err != nil {
			t.Fatal(err)
		}
		return handler
	}
	exits := oci.NewExits(h.monitor, nil)
	runtimetest.Run(t, runtimetest.Subject{StateDir: h.state, Open: open, Forget: exits.Forget, Isolated: true, Tidy: true, Split: true})
}
