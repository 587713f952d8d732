package networktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inside is set in the environment of the process that has its own namespaces.
const inside = "FAIRLEAD_NETWORKTEST_INSIDE"

// The main thread cannot end, so it must not be the one that pin spends on a
// new namespace. Locked here, only the main goroutine runs on it.
func init() { runtime.LockOSThread() }

// Main runs the tests of a package in network and mount namespaces of their
// own. Without root it runs them where they are; NeedRoot skips then.
func Main(m *testing.M) {
	if os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(inside) == "" {
		os.Exit(enter())
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the test namespace:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func enter() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "enter the test namespace:", err)
		return 1
	}
	return 0
}

// prepare makes mounts private and brings loopback up.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// sysfs shows the interfaces of the namespace it was mounted in.
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	return netlink.LinkSetUp(lo)
}

// NeedRoot skips a test that changes network namespaces.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces, links and nftables rules")
	}
}

// NeedIPv6 skips a test of IPv6 where the kernel has none.
func NeedIPv6(t testing.TB) {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err != nil || b[0] != '0' {
		t.Skip("needs IPv6, which is off or missing in this kernel")
	}
}
