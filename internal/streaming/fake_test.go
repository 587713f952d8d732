package streaming

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/pod"
)

// fakeCore runs the commands on the host, each in a session of its own, and has
// one container to attach to.
type fakeCore struct {
	mu      sync.Mutex
	execs   []*fakeExec
	pod     *pod.Record
	attach  func(stdout, stderr *os.File, stdin bool) (lifecycle.Attachment, error)
	resized chan [2]uint16
}

func (c *fakeCore) Exec(_ context.Context, id pod.ContainerID, o lifecycle.ExecOptions) (lifecycle.Exec, error) {
	defer closeAll(o.Stdio)
	if id == "gone" {
		return nil, fmt.Errorf("container gone: %w", errdefs.ErrNotFound)
	}
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	x := &fakeExec{cmd: cmd, ended: make(chan struct{})}
	if o.TTY {
		master, slave, err := openPTY()
		if err != nil {
			return nil, err
		}
		defer slave.Close()
		x.tty = master
		o.Stdio = [3]*os.File{slave, slave, slave}
		cmd.SysProcAttr.Setctty = true
	}
	if o.Stdio[0] != nil {
		cmd.Stdin = o.Stdio[0]
	}
	if o.Stdio[1] != nil {
		cmd.Stdout = o.Stdio[1]
	}
	if o.Stdio[2] != nil {
		cmd.Stderr = o.Stdio[2]
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(x.ended)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.execs = append(c.execs, x)
	return x, nil
}

func (c *fakeCore) Attach(_ context.Context, _ pod.ContainerID, stdout, stderr *os.File, stdin bool) (lifecycle.Attachment, error) {
	return c.attach(stdout, stderr, stdin)
}

func (c *fakeCore) Resize(_ context.Context, _ pod.ContainerID, w, h uint16) error {
	c.resized <- [2]uint16{w, h}
	return nil
}

func (c *fakeCore) FindPod(id string) (*pod.Record, error) {
	if c.pod == nil || string(c.pod.ID) != id {
		return nil, fmt.Errorf("pod %s: %w", id, errdefs.ErrNotFound)
	}
	return c.pod, nil
}

// last is the newest process, once there are n.
func (c *fakeCore) last(t *testing.T, n int) *fakeExec {
	t.Helper()
	var x *fakeExec
	eventually(t, "the process to be started", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.execs) < n {
			return false
		}
		x = c.execs[n-1]
		return true
	})
	return x
}

type fakeExec struct {
	cmd    *exec.Cmd
	tty    *os.File
	ended  chan struct{}
	mu     sync.Mutex
	killed bool
	closed bool
}

func (x *fakeExec) Wait(ctx context.Context) (pod.Exit, error) {
	select {
	case <-x.ended:
	case <-ctx.Done():
		return pod.Exit{}, ctx.Err()
	}
	code := x.cmd.ProcessState.ExitCode()
	if s := x.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		code = 128 + int(s.Signal())
	}
	return pod.Exit{Code: int32(code)}, nil
}

func (x *fakeExec) Kill(context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.killed = true
	err := unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		return errdefs.ErrNotFound
	}
	return err
}

func (x *fakeExec) TTY() *os.File { return x.tty }

func (x *fakeExec) Close(context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return nil
}

func (x *fakeExec) wasKilled() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.killed
}

// fakeAttachment is a container that prints what the test writes to out, and
// whose input the test reads from in.
type fakeAttachment struct {
	stdin  *os.File
	done   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (a *fakeAttachment) Stdin() *os.File       { return a.stdin }
func (a *fakeAttachment) Done() <-chan struct{} { return a.done }
func (a *fakeAttachment) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

func openPTY() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd()) // blocking from here on, as one that came over a socket
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}

// serve runs a server until the test ends, and then checks that nothing of it
// is left.
func serve(t *testing.T, core *fakeCore, change func(*Config)) *Server {
	t.Helper()
	c := Config{Core: core, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
	c.Dial = func(context.Context, *pod.Record, uint16) (net.Conn, error) {
		return nil, errors.New("no network in this test")
	}
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("the server does not end:\n%s", stacks())
		}
		for _, x := range core.execs {
			if !x.closed {
				t.Errorf("process %v was not closed", x.cmd.Args)
			}
		}
		deadline := time.Now().Add(10 * time.Second)
		for g := leftover(); g != ""; g = leftover() {
			if time.Now().After(deadline) {
				t.Fatalf("a goroutine is left over:\n%s", g)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return s
}

// leftover is a goroutine of the product's, if there is one. Those of the
// client's libraries may take longer.
func leftover() string {
	for _, g := range strings.Split(stacks(), "\n\n") {
		for _, line := range strings.Split(g, "\n") {
			ours := strings.Contains(line, "/internal/streaming/") && !strings.Contains(line, "_test.go")
			if ours || strings.Contains(line, "http.(*conn).serve") {
				return g
			}
		}
	}
	return ""
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func contains(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%q does not contain %q", got, want)
	}
}
