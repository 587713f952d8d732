package run

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDaemonOfAnotherUser: every folder is the user's own, so that nothing but
// the user is in the way.
func TestDaemonOfAnotherUser(t *testing.T) {
	const nobody = 65534
	program, err := os.Open(filepath.Join(bin, "fairlead"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The folder of the program is root's alone, and its descriptor is not.
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", "runtime", "--root", dir+"/root", "--state", dir+"/state")
	cmd.ExtraFiles = []*os.File{program}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("the daemon did not end with code 1: %v\n%s", err, out)
	}
	if want := "fairlead: only root can serve the CRI"; !strings.HasPrefix(string(out), want) {
		t.Errorf("it says %q, want %q", out, want)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) != 0 {
		t.Errorf("it has left %v, %v", made, err)
	}
}
