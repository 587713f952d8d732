package main

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

// asItself makes the test binary be the program.
const asItself = "WITHCGROUPS_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), asItself+"=1")
	return cmd
}

// A red test run must stay red.
func TestStatusAndInputPass(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"bash", "-c", "cat; exit 7"}, 7},
		{[]string{"cat"}, 0},
		{[]string{"bash", "-c", "cat; kill -KILL $$"}, 128 + 9},
	} {
		cmd := program(t, tt.args...)
		cmd.Stdin = strings.NewReader("in and out")
		out, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != tt.want {
			t.Errorf("%q: exit status %d (%v), want %d", tt.args, code, err, tt.want)
		}
		if string(out) != "in and out" {
			t.Errorf("%q: output %q", tt.args, out)
		}
	}
}

func TestMissingCommand(t *testing.T) {
	out, err := program(t, "/no/such/command").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/no/such/command") {
		t.Fatalf("err = %v, output %q", err, out)
	}
}

func TestTermEndsTheCommand(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := program(t, "bash", "-c", `trap 'exit 5' TERM; touch "$0"; while :; do sleep 0.05; done`, ready)
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

// Ctrl-C reaches the whole foreground; the tidying up outlives it.
func TestInterruptOfTheWholeGroup(t *testing.T) {
	cmd := program(t, "sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGINT) {
		t.Fatalf("exit status %d, want 130", code)
	}
}

// Wherever it runs as root, crun finds no controller in its way.
func TestUnifiedMountIsFree(t *testing.T) {
	const controllers = "/sys/fs/cgroup/unified/cgroup.controllers"
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat(controllers); err != nil {
		t.Skip("needs a hybrid host, with cgroup v1 and a unified mount")
	}
	out, err := program(t, "cat", controllers).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Fatalf("controllers left in unified: %q, err = %v", out, err)
	}
}
