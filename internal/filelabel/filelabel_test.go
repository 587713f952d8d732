package filelabel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func labelOf(t *testing.T, path string) string {
	t.Helper()
	b := make([]byte, 100)
	n, err := unix.Lgetxattr(path, "security.selinux", b)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// A kernel without SELinux keeps any text.
func TestSet(t *testing.T) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil || os.Geteuid() != 0 {
		t.Skip("needs root, and a kernel without SELinux")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"", "u:r:t", "u:r:t:s0:c1,c2"} {
		if err := Set(file, set); err != nil {
			t.Fatal(err)
		}
		if got := labelOf(t, file); got != set {
			t.Errorf("label %q, want %q", got, set)
		}
	}
	link := filepath.Join(filepath.Dir(file), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := Set(link, "x"); err != nil || labelOf(t, link) != "x" || labelOf(t, file) == "x" {
		t.Errorf("a link was followed: %v", err)
	}
	if err := Set(file+"-missing", "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := Set("/proc/self/status", "x"); err != nil {
		t.Errorf("a file system without labels: %v", err)
	}
}
