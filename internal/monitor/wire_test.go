package monitor_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/monitor/wire"
)

func (n *node) dial() *wire.Conn {
	n.t.Helper()
	c, err := wire.Dial(n.ctx, filepath.Join(n.opt.StateDir, "monitor", "monitor.sock"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	return c
}

// Whatever a caller sends, it gets a clear error or is hung up on, and the
// monitor goes on.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := n.info()
	ask := func(c *wire.Conn, v any, fds ...int) monitorv1.Reply {
		t.Helper()
		var reply monitorv1.Reply
		if err := c.Send(v, fds...); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Recv(&reply, monitorv1.MaxReply); err != nil {
			t.Fatal(err)
		}
		return reply
	}
	c := n.dial()
	for name, x := range map[string]struct {
		send any
		kind monitorv1.Kind
	}{
		"not a request":    {[]int{1}, monitorv1.KindInvalid},
		"other version":    {monitorv1.Request{Version: 99, Op: monitorv1.OpInfo}, monitorv1.KindUnimplemented},
		"unknown op":       {monitorv1.Request{Version: 1, Op: "dance"}, monitorv1.KindUnimplemented},
		"no body":          {monitorv1.Request{Version: 1, Op: monitorv1.OpStart}, monitorv1.KindInvalid},
		"body of a string": {monitorv1.Request{Version: 1, Op: monitorv1.OpStart, Body: json.RawMessage(`"x"`)}, monitorv1.KindInvalid},
		"unknown id":       {monitorv1.Request{Version: 1, Op: monitorv1.OpSignal, Body: json.RawMessage(`{"id":"x","signal":9}`)}, monitorv1.KindNotFound},
	} {
		reply := ask(c, x.send)
		if reply.Error == nil || reply.Error.Kind != x.kind || reply.Error.Message == "" {
			t.Errorf("%s: %+v", name, reply.Error)
		}
	}
	fds := slices.Repeat([]int{0}, 10)
	if reply := ask(c, monitorv1.Request{Version: 1, Op: monitorv1.OpInfo}, fds...); reply.Error == nil || reply.Error.Kind != monitorv1.KindInvalid {
		t.Errorf("too many descriptors: %+v", reply.Error)
	}
	var huge [4]byte
	binary.BigEndian.PutUint32(huge[:], 1<<31)
	if _, err := unix.Write(c.FD(), huge[:]); err != nil {
		t.Fatal(err)
	}
	var reply monitorv1.Reply
	if _, err := c.Recv(&reply, monitorv1.MaxReply); err != nil || reply.Error == nil || !strings.Contains(reply.Error.Message, "too large") {
		t.Errorf("huge frame: %+v %v", reply.Error, err)
	}
	// Half a frame, then nothing.
	half := n.dial()
	_, _ = unix.Write(half.FD(), []byte{0, 0, 0, 9, '{'})
	_ = half.Close()
	if after := n.info(); after.InnerPID != before.InnerPID {
		t.Error("the inner process was restarted")
	}
	entries, _ := os.ReadDir("/proc/" + strconv.Itoa(before.InnerPID) + "/fd")
	if len(entries) > 40 {
		t.Errorf("%d descriptors are open", len(entries))
	}
}

func TestOnlyRoot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, path := range []string{n.dir, n.opt.StateDir, n.opt.StateDir + "/monitor"} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sock := n.opt.StateDir + "/monitor/monitor.sock"
	if st, err := os.Stat(sock); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the socket: %v %v", st.Mode(), err)
	}
	if err := os.Chmod(sock, 0o666); err != nil {
		t.Fatal(err)
	}
	// The test binary as another user: its client is refused by uid.
	// A copy, because others may not enter the directory of the original.
	program, err := os.ReadFile(n.bin)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.dir+"/stranger", program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(n.dir+"/stranger", "stranger", n.opt.StateDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if !strings.Contains(string(out), "root only") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestShutdownIsRefusedWhileProcessesLive(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	s := n.start(n.shell("a", "exec sleep 1000"))
	if err := n.Shutdown(n.ctx, false); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("shutdown: %v", err)
	}
	if err := unix.Kill(n.info().OuterPID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if i := n.info(); i.Live != 1 || !alive(s.PID) {
		t.Errorf("after SIGTERM: %+v", i)
	}
	if err := n.Shutdown(n.ctx, true); err != nil {
		t.Fatal(err)
	}
	if alive(s.PID) {
		t.Error("the process lives after a forced shutdown")
	}
	// An idle one ends at SIGTERM.
	again, err := client.Ensure(n.ctx, n.opt)
	if err != nil {
		t.Fatal(err)
	}
	i, err := again.Info(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Kill(i.OuterPID, unix.SIGTERM)
	n.eventually("the end", func() bool { return !alive(i.OuterPID) && !alive(i.InnerPID) })
}

// Several daemons that start at once get one monitor.
func TestEnsureTogether(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := n.Shutdown(n.ctx, false); err != nil {
		t.Fatal(err)
	}
	pids := make(chan int, 8)
	for range 8 {
		go func() {
			c, err := client.Ensure(n.ctx, n.opt)
			if err != nil {
				t.Error(err)
				pids <- 0
				return
			}
			i, err := c.Info(n.ctx)
			if err != nil {
				t.Error(err)
			}
			pids <- i.OuterPID
		}()
	}
	first := <-pids
	for range 7 {
		if pid := <-pids; pid != first {
			t.Errorf("monitors %d and %d", first, pid)
		}
	}
}

// The process of a pod ends by SIGTERM, and well. One that has not asked for signals yet
// may not get one, as it is process 1 of its namespace, or ends otherwise: then another
// is given more time to ask.
func TestPause(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a PID namespace")
	}
	for patience := 50 * time.Millisecond; ; patience *= 2 {
		err := pauseFor(t, patience)
		if err == nil {
			return
		}
		if patience > time.Minute {
			t.Fatalf("pause ended with %v after %s", err, patience)
		}
	}
}

// pauseFor starts a process, asks it to end after a while and again whenever that has
// passed, and returns how it ended.
func pauseFor(t *testing.T, patience time.Duration) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "pause")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
		}
	}
	_ = cmd.Process.Kill()
	<-done
	t.Fatal("pause did not end")
	return nil
}
