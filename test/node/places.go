package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/failpoint"
)

// Places are the names of all failpoints that are compiled into the daemon, and
// MonitorPlaces those in the monitor. The programs themselves say so: each
// refuses a name that it does not have and lists the others.
func Places(t *testing.T) []string {
	t.Helper()
	all := places(t, failpoint.Env, "fairlead", "runtime", "--state", t.TempDir(), "--root", t.TempDir())
	// Those of the installer and of fairlead up are no part of the daemon; test/installer and
	// test/run pass them.
	return slices.DeleteFunc(all, func(place string) bool {
		return strings.HasPrefix(place, "install.") || strings.HasPrefix(place, "changeset.")
	})
}

// MonitorPlaces is Places of the monitor.
func MonitorPlaces(t *testing.T) []string {
	t.Helper()
	return inMonitor(t, "monitor.")
}

// ShimPlaces is Places of what the monitor starts for containers of shims, which
// is the same program.
func ShimPlaces(t *testing.T) []string {
	t.Helper()
	return inMonitor(t, "shim.")
}

func inMonitor(t *testing.T, kind string) []string {
	t.Helper()
	all := places(t, failpoint.MonitorEnv, "fairlead-monitor", "--state="+t.TempDir())
	return slices.DeleteFunc(all, func(place string) bool { return !strings.HasPrefix(place, kind) })
}

func places(t *testing.T, variable, program string, args ...string) []string {
	t.Helper()
	cmd := exec.Command(filepath.Join(Bin, program), args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", variable+"=none=kill")
	out, err := cmd.CombinedOutput()
	_, list, ok := strings.Cut(string(out), "there are: ")
	if err == nil || !ok {
		t.Fatalf("%s does not list its failpoints: %v %s", program, err, out)
	}
	line, _, _ := strings.Cut(list, "\n")
	return strings.Split(strings.TrimSpace(line), ", ")
}
