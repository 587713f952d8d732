package filelock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/filelock"
)

func write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestMissingAndUnlockedFilesAreLeftAlone(t *testing.T) {
	path := write(t)
	was := inode(t, path)
	if did, err := filelock.Reclaim(path); did || err != nil || inode(t, path) != was {
		t.Errorf("an unlocked file: %t, %v", did, err)
	}
	if did, err := filelock.Reclaim(path + ".none"); did || err != nil {
		t.Errorf("a missing file: %t, %v", did, err)
	}
}

func TestALockOfTheLivingStays(t *testing.T) {
	path := write(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	was := inode(t, path)
	if did, err := filelock.Reclaim(path); did || err != nil || inode(t, path) != was {
		t.Errorf("a file that this process has locked: %t, %v", did, err)
	}
}

// The dead here is a process that locked the file, passed the open file on to
// this one by inheritance, and ended without being reaped: a zombie whose lock
// lives on, as that of a daemon does which hangs in the kernel.
func TestALockOfTheDeadGoes(t *testing.T) {
	path := write(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	holder := exec.Command("flock", "-x", "3")
	holder.ExtraFiles = []*os.File{f}
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("needs flock of util-linux")
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, holder.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	was := inode(t, path)
	did, err := filelock.Reclaim(path)
	if !did || err != nil || inode(t, path) == was {
		t.Fatalf("a file that a zombie has locked: %t, %v", did, err)
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != "content" {
		t.Errorf("the copy holds %q, %v", content, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the copy's mode is %v, %v", st.Mode(), err)
	}
	if again, err := filelock.Reclaim(path); again || err != nil {
		t.Errorf("once more: %t, %v", again, err)
	}
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
}
