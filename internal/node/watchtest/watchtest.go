// Package watchtest is for tests of what watches files, where a user has no inotify instance
// left, as on a desktop whose programs have them all.
package watchtest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const (
	variable = "FAIRLEAD_TEST_UNWATCHED"
	limit    = "/proc/sys/user/max_inotify_instances"
)

// Unwatched has the test run again, in a process of its own in whose user namespace there are no
// inotify instances. There it returns what gives them back; where it returns nil, all is done.
func Unwatched(t *testing.T) (mend func() error) {
	t.Helper()
	if os.Getenv(variable) != "" {
		had, err := os.ReadFile(limit)
		if err == nil {
			err = os.WriteFile(limit, []byte("0"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() error { return os.WriteFile(limit, had, 0) }
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		t.Skip("it needs root, or a kernel that lets others make user namespaces: ", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
	return nil
}
