package standin

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stand-in" {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// sandbox is one whose containers end as result says, once end is closed.
func sandbox(t *testing.T, result string, end <-chan struct{}, signals chan<- int32) (root string) {
	t.Helper()
	root = t.TempDir()
	l, err := net.Listen("unix", filepath.Join(root, "runsc-box.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		var call struct {
			Method string
			Arg    json.RawMessage
		}
		if json.NewDecoder(c).Decode(&call) != nil {
			return
		}
		if strings.HasSuffix(call.Method, ".Signal") {
			var args struct{ Signo int32 }
			_ = json.Unmarshal(call.Arg, &args)
			signals <- args.Signo
			_, _ = c.Write([]byte(`{"success":true}`))
			return
		}
		<-end
		_, _ = c.Write([]byte(result))
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return root
}

func program(root string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], append([]string{"stand-in", "--root", root, "--sandbox", "box", "--id", "c1"}, args...)...)
	c.Stderr = os.Stderr
	return c
}

func TestEndsAsTheContainerDoes(t *testing.T) {
	now := make(chan struct{})
	close(now)
	for name, tt := range map[string]struct {
		result string
		code   int
		signal syscall.Signal
	}{
		"code 0":           {result: `{"success":true,"result":0}`},
		"code 7":           {result: `{"success":true,"result":1792}`, code: 7},
		"SIGKILL":          {result: `{"success":true,"result":9}`, signal: syscall.SIGKILL},
		"SIGTERM":          {result: `{"success":true,"result":15}`, signal: syscall.SIGTERM},
		"SIGSEGV":          {result: `{"success":true,"result":11}`, signal: syscall.SIGSEGV},
		"the sandbox dies": {result: "", signal: syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			c := program(sandbox(t, tt.result, now, nil))
			err := c.Run()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}
			st := c.ProcessState.Sys().(syscall.WaitStatus)
			if tt.signal != 0 && (!st.Signaled() || st.Signal() != tt.signal) || tt.signal == 0 && st.ExitStatus() != tt.code {
				t.Errorf("it ended with %#x", st)
			}
		})
	}
}

func TestPassesSignalsOn(t *testing.T) {
	end, signals := make(chan struct{}), make(chan int32, 64)
	c := program(sandbox(t, `{"success":true,"result":768}`, end, signals))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	// It may not have come so far that it would pass anything on: what has no
	// effect by default is sent until it has.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := c.Process.Signal(syscall.SIGWINCH); err != nil || time.Now().After(deadline) {
			t.Fatal("SIGWINCH does not arrive", err)
		}
		if len(signals) > 0 {
			break
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for s := range signals {
		if s == int32(syscall.SIGTERM) {
			break
		}
	}
	close(end)
	if err := c.Wait(); c.ProcessState.ExitCode() != 3 {
		t.Errorf("%v", err)
	}
}

func TestStartsTheContainer(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	root := sandbox(t, `{"success":true,"result":1280}`, end, nil)
	pidFile := filepath.Join(root, "pid")
	if err := program(root, "--pid-file", pidFile, "--", "sh", "-c", "exit 4").Run(); err == nil || err.(*exec.ExitError).ExitCode() != 4 {
		t.Errorf("a command that fails: %v", err)
	}
	if _, err := os.Stat(pidFile); err == nil {
		t.Error("a start that failed left a stand-in")
	}
	if err := program(root, "--pid-file", pidFile, "--", "true").Run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	close(end)
	var st syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &st, 0, nil); err != nil || st.ExitStatus() != 5 {
		t.Errorf("the stand-in ended with %#x, %v", st, err)
	}
}
