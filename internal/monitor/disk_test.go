package monitor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of so many KiB.
func (n *node) smallDisk(size int) string {
	n.t.Helper()
	dir := n.dir + "/disk"
	if err := os.Mkdir(dir, 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", size)); err != nil {
		n.t.Skipf("needs to mount a tmpfs: %v", err)
	}
	n.t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			n.t.Error(err)
		}
	})
	return dir
}

// While the log's disk is full, output waits, others go on, and nothing is
// lost or doubled once there is room, even if the monitor is killed meanwhile.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	disk := n.smallDisk(256)
	if err := os.WriteFile(disk+"/ballast", make([]byte, 128<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	req := n.shell("full", `i=0; while [ $i -lt 1500 ]; do echo "line $i 0123456789012345678901234567890123456789012345678901234567890"; i=$((i+1)); done`)
	req.LogPath = disk + "/full.log"
	n.start(req)
	n.eventually("a report", func() bool {
		list, err := n.List(n.ctx)
		return err == nil && len(list) == 1 && strings.Contains(list[0].LogError, "no space left")
	})
	n.start(n.shell("other", "echo fine"))
	n.wait("other")
	if got := n.text("other", "stdout"); got != "fine\n" {
		t.Errorf("other container: %q", got)
	}
	n.kill(n.info().InnerPID)
	n.info()
	time.Sleep(100 * time.Millisecond)
	if err := os.Remove(disk + "/ballast"); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("full"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	all := n.logFile(req.LogPath)
	for i, e := range all {
		if want := fmt.Sprintf("line %d ", i); !strings.HasPrefix(e.text, want) || len(e.text) != len(want)+61 {
			t.Fatalf("entry %d: %q", i, e.text)
		}
	}
	if len(all) != 1500 {
		t.Errorf("%d lines", len(all))
	}
	n.eventually("no report any more", func() bool {
		list, err := n.List(n.ctx)
		return err == nil && list[0].LogError == "" && list[1].LogError == ""
	})
}

// An exit does not wait for a disk: it is told while there is still no room.
func TestExitWhileDiskFull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	disk := n.smallDisk(256)
	_ = os.WriteFile(disk+"/ballast", make([]byte, 300<<10), 0o600) // as much as fits
	req := n.shell("a", "echo last words; exit 3")
	req.LogPath = disk + "/a.log"
	n.start(req)
	if e := n.wait("a"); e.Code != 3 {
		t.Errorf("exit %+v", e)
	}
	if err := os.Remove(disk + "/ballast"); err != nil {
		t.Fatal(err)
	}
	n.eventually("the log", func() bool {
		all := n.logFile(req.LogPath)
		return len(all) == 1 && all[0].text == "last words"
	})
}

// A process that outlives the container's own keeps its output.
func TestOutputAfterExit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	told := filepath.Join(n.dir, "go-on")
	n.start(n.shell("a", "echo first; (while [ ! -e "+told+" ]; do sleep 0.02; done; echo second) & exit 0"))
	n.wait("a")
	if got := n.text("a", "stdout"); got != "first\n" {
		t.Errorf("at the exit: %q", got)
	}
	if err := os.WriteFile(told, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.eventually("the rest", func() bool { return n.text("a", "stdout") == "first\nsecond\n" })
}
