package oci

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/runtime/runtimetest"
	"fairlead.run/test/hostprep"
)

// monitorBinary is built once for all tests that need root; where that failed,
// they say why.
var (
	monitorBinary string
	monitorFailed string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "fairlead-oci")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	monitorBinary = filepath.Join(dir, "fairlead-monitor")
	build := exec.Command("go", "build", "-tags", "grpcnotrace nri_no_wasm", "-o", monitorBinary, "fairlead.run/cmd/fairlead-monitor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		monitorFailed = err.Error() + "\n" + string(out)
	}
	// What crun says before the host suits it, while nobody else prepares it.
	if unprepared = cgroup.HybridControllers(cgroupRoot); unprepared != "" {
		unpreparedCrun = probeCrun()
	}
	release, err := hostprep.Cgroups()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare cgroups for crun:", err)
		return 1
	}
	defer release()
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

// newMonitor starts a monitor of the test's own.
func newMonitor(t *testing.T) (*client.Client, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if monitorFailed != "" {
		t.Fatalf("build fairlead-monitor: %s", monitorFailed)
	}
	state, err := os.MkdirTemp("/run", "fairlead-oci-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	m, err := client.Ensure(t.Context(), client.Options{StateDir: state, Binary: monitorBinary, Cgroup: client.NoCgroup})
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
	return m, state
}

// unpreparedCrun is the trial of crun on the host as it was, with the
// controllers that cgroup v2 had then.
var (
	unprepared     string
	unpreparedCrun pod.HandlerInfo
)

func probeCrun() pod.HandlerInfo {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	state, err := os.MkdirTemp("", "fairlead-oci")
	if err != nil {
		return pod.HandlerInfo{Reason: err.Error()}
	}
	defer os.RemoveAll(state)
	d, err := New(Config{StateDir: state, Monitor: &fakeMonitor{}, StandIn: monitorBinary})
	if err != nil {
		return pod.HandlerInfo{Reason: err.Error()}
	}
	return d.Probe(ctx, runtime.Definition{Name: "crun", Search: runtime.SearchPath()})
}

func TestCrunInHybridMode(t *testing.T) {
	if unprepared == "" {
		t.Skip("this host's cgroups suit crun, or somebody else has prepared them")
	}
	if _, err := exec.LookPath("crun"); err != nil {
		t.Skip("crun is not installed")
	}
	if unpreparedCrun.Ready {
		t.Skipf("crun %s takes hybrid hosts", unpreparedCrun.Version)
	}
	for _, want := range append(strings.Fields(unprepared), "/sys/fs/cgroup/unified", "mount -t cgroup -o ") {
		if !strings.Contains(unpreparedCrun.Reason, want) {
			t.Errorf("the reason lacks %q: %s", want, unpreparedCrun.Reason)
		}
	}
	if after := probeCrun(); !after.Ready {
		t.Errorf("after the host was prepared: %s", after.Reason)
	}
}

// registry makes the real registry for one runtime.
func registry(t *testing.T, d *Driver, name string) *runtime.Registry[*Handler] {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
	kinds := map[string]runtime.Kind[*Handler]{runtime.KindOCI: Kind(d, func(h *Handler) *Handler { return h })}
	r, err := runtime.New(runtime.Config{Wanted: runtime.Wanted{Discover: true}}, kinds)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testContract(t *testing.T, name string) {
	m, state := newMonitor(t)
	open := func(t *testing.T) runtimetest.Handler {
		d, err := New(Config{StateDir: state, Monitor: m, StandIn: monitorBinary})
		if err != nil {
			t.Fatal(err)
		}
		h, err := registry(t, d, name).Get(name)
		if err != nil {
			t.Skipf("%s does not work on this host: %v", name, err)
		}
		return h
	}
	exits := NewExits(m, nil)
	runtimetest.Run(t, runtimetest.Subject{StateDir: state, Open: open, Forget: exits.Forget, Isolated: true})
}

func TestContractRunc(t *testing.T) { testContract(t, "runc") }

func TestContractCrun(t *testing.T) { testContract(t, "crun") }

var _ runtimetest.Handler = (*Handler)(nil)
