// Package mounttest lets a test of the installer mount what nobody else sees. It mounts
// nothing itself.
package mounttest

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Private has the rest of a test on a thread of its own, whose mounts are seen there alone
// and go with it. Without root the test is skipped.
func Private(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}
