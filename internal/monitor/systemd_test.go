package monitor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnitOfARunningMonitor: systemd starts the program although there is a
// monitor, because a daemon has started it or because the unit's first process
// was killed and the inner one has taken its place.
func TestUnitOfARunningMonitor(t *testing.T) {
	n := newNode(t)
	n.start(n.shell("a", "sleep 1000"))
	path := filepath.Join(n.dir, "notify")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	starts := func() string {
		cmd := exec.Command(n.bin, "--state="+n.opt.StateDir)
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		buf := make([]byte, 4096)
		got, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err != nil {
			t.Fatalf("nothing was told: %v", err)
		}
		return string(buf[:got])
	}
	want := func(outer int) string { return fmt.Sprintf("MAINPID=%d\nREADY=1\nSTATUS=already running", outer) }
	before := n.info()
	if got := starts(); got != want(before.OuterPID) {
		t.Errorf("told %q", got)
	}
	n.kill(before.OuterPID)
	if got := starts(); got != want(before.InnerPID) && got != want(before.OuterPID) {
		t.Errorf("after the outer process was killed: told %q", got)
	}
	n.eventually("the inner process takes over", func() bool { return n.info().OuterPID == before.InnerPID })
	if got := starts(); got != want(before.InnerPID) {
		t.Errorf("after it was replaced: told %q", got)
	}
}
