package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/test/node"
)

// shutdownExt4 is EXT4_IOC_SHUTDOWN of <uapi/linux/ext4.h>; zero as its argument
// writes everything before.
const shutdownExt4 = 0x8004587d

// loop is the disk's device.
func (d *disk) loop() string {
	d.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if _, source, _ := strings.Cut(line, " - "); fields[4] == d.dir {
			return strings.TrimPrefix(strings.Fields(source)[1], "/dev/")
		}
	}
	d.t.Fatalf("%s is not mounted", d.dir)
	return ""
}

// abort makes the file system find an error in itself: it is read-only from then
// on, also for who has files open.
func (d *disk) abort() {
	d.t.Helper()
	unix.Sync()
	trigger := "/sys/fs/ext4/" + d.loop() + "/trigger_fs_error"
	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		d.t.Skipf("needs a kernel in which ext4 can be made to fail: %v", err)
	}
	node.Eventually(d.t, "the disk is read-only", func() bool { return os.Mkdir(d.ballast(), 0o700) != nil })
}

// shutDown makes the file system fail like a device that has gone: whatever is
// not in memory ends with EIO.
func (d *disk) shutDown() {
	d.t.Helper()
	fd, err := unix.Open(d.dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetPointerInt(fd, shutdownExt4, 0); err != nil {
		d.t.Skipf("needs a kernel in which ext4 can be shut down: %v", err)
	}
}

// mountAgain takes the disk away from everybody and mounts it as after a repair.
func (d *disk) mountAgain() {
	d.t.Helper()
	unmountBelow(d.t, d.dir)
	run(d.t, "umount", "--lazy", d.dir)
	// Until the last who had something open has let go, it is the broken one.
	node.Eventually(d.t, "the disk is a new one", func() bool {
		_ = exec.Command("e2fsck", "-fy", d.file).Run() // its code says whether it found something
		run(d.t, "mount", "-o", "loop,errors=remount-ro", d.file, d.dir)
		probe := filepath.Join(d.dir, "probe")
		if os.WriteFile(probe, []byte("works"), 0o600) == nil && os.Remove(probe) == nil {
			return true
		}
		run(d.t, "umount", "--lazy", d.dir)
		time.Sleep(100 * time.Millisecond)
		return false
	})
}

// afterMending is what an administrator does with a disk that does not get over
// its fault: everything ends that uses it, and begins again, as at a boot.
func afterMending(t *testing.T, n *node.Node, mend func()) {
	t.Helper()
	killAll(n)
	unmountBelow(t, n.Dir)
	mend()
	if err := os.RemoveAll(n.State); err != nil {
		t.Fatal(err)
	}
	dropEmptyCgroups(n)
	n.Start()
	n.Pull(node.Busybox)
	c := n.RunPod("crun").Start(node.Script("echo started; sleep 1000"))
	node.Eventually(t, "the output of the container", func() bool { return strings.TrimSpace(c.Log()) == "started" })
	c.Exec("true")
}
