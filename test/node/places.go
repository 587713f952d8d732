package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/failpoint"
)

// Places are the names of all failpoints that are compiled into the daemon, and
// MonitorPlaces those in the monitor. The programs themselves say so: each
// refuses a name that it does not have and lists the others.
func Places(t *testing.T) []string {
	t.Helper()
	return places(t, failpoint.Env, "fairlead", "runtime", "--state", t.TempDir(), "--root", t.TempDir())
}

// MonitorPlaces is Places of the monitor.
func MonitorPlaces(t *testing.T) []string {
	t.Helper()
	return places(t, failpoint.MonitorEnv, "fairlead-monitor", "--state="+t.TempDir())
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
