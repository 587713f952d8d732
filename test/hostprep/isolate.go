package hostprep

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inside is set in the environment of the process that has its own namespaces.
const inside = "FAIRLEAD_TEST_ISOLATED"

// machine is set to "own" in the environment of tests that have a machine to
// themselves, with nothing on it that they could disturb.
const machine = "FAIRLEAD_TEST_MACHINE"

// OwnMachine says whether the tests may change what is the whole machine's.
func OwnMachine() bool { return os.Getenv(machine) == "own" }

// The main thread cannot end, so it must not be the one that a test spends on
// a new namespace. Locked here, only the main goroutine runs on it.
func init() { runtime.LockOSThread() }

// Isolated runs a test binary, which is a TestMain's whole body, in network and
// mount namespaces of its own: whatever its tests and the programs they start
// do to links, routes, packet filters and mounts is gone with them. Without
// root it runs where it is.
//
// On a machine of the tests' own the network is the machine's: kernels before 6.15
// tell only who is there how the processes of others ended.
func Isolated(run func() int) int {
	if os.Getuid() != 0 {
		return run()
	}
	if os.Getenv(inside) == "" {
		return enter()
	}
	if err := Furnish(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the namespaces of the test:", err)
		return 1
	}
	return run()
}

func enter() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	if OwnMachine() {
		cmd.SysProcAttr.Cloneflags &^= unix.CLONE_NEWNET
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "enter the namespaces of the test:", err)
		return 1
	}
	return 0
}

// Furnish makes the network and mount namespaces usable that this process was
// started in: mounts become private, /sys shows the new network, and loopback is
// up. Isolated does it by itself.
func Furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := remountSys(append([]string{root}, security...)); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	return netlink.LinkSetUp(lo)
}

// security is where the security modules show things, which is missing where the
// kernel has none of them.
var security = []string{"/sys/kernel/security", "/sys/fs/selinux"}

// remountSys mounts a sysfs in place of the old one, because it shows the interfaces
// of the namespace it was mounted in, and brings along what is mounted below it
// and has nothing to do with a network. The old one goes: covered, it would stay
// in the mount table, where its cgroups look like those that are seen.
func remountSys(brought []string) error {
	trees := map[string]int{}
	for _, dir := range brought {
		fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("take hold of %s: %w", dir, err)
		}
		defer unix.Close(fd)
		trees[dir] = fd
	}
	for unix.Unmount("/sys", unix.MNT_DETACH) == nil { // one may cover another
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	for dir, fd := range trees {
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("bring %s along: %w", dir, err)
		}
	}
	return nil
}
