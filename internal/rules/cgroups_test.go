package rules

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func withCgroups(t *testing.T, command string) *exec.Cmd {
	t.Helper()
	script, err := filepath.Abs(filepath.Join(top, "build/with-cgroups.sh"))
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), script, "bash", "-c", command)
}

// A red test run must stay red behind the wrapper.
func TestWithCgroupsPassesInputAndStatus(t *testing.T) {
	cmd := withCgroups(t, "cat; exit 7")
	cmd.Stdin = strings.NewReader("in and out")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("err = %v, want exit status 7", err)
	}
	if string(out) != "in and out" {
		t.Errorf("output %q", out)
	}
}

func TestWithCgroupsEndsItsCommandWhenTold(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := withCgroups(t, `trap 'exit 5' TERM; touch "`+ready+`"; while :; do sleep 0.05; done`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			t.Fatal("the command did not start")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Fatalf("err = %v, want the status of the command, 5", err)
	}
}

// Wherever the wrapper runs as root, crun finds no controller in its way.
func TestWithCgroupsFreesTheUnifiedMount(t *testing.T) {
	const controllers = "/sys/fs/cgroup/unified/cgroup.controllers"
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat(controllers); err != nil {
		t.Skip("needs a hybrid host, with cgroup v1 and a unified mount")
	}
	out, err := withCgroups(t, "cat "+controllers).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Fatalf("controllers left in unified: %q, err = %v", out, err)
	}
}
