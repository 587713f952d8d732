package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// hostile is a root full of links that lead out of it, and the folder outside
// that they lead to.
func hostile(t *testing.T) (root, outside string) {
	t.Helper()
	base := t.TempDir()
	root, outside = filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, d := range []string{filepath.Join(root, "etc"), outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(outside, "secret"), "secret")
	write(t, filepath.Join(root, "etc/passwd"), "inside")
	for link, to := range map[string]string{
		"abs": outside, "dots": "../outside", "deep": strings.Repeat("../", 40) + outside[1:],
		"file": filepath.Join(outside, "secret"), "procfs": "/proc/self/root" + outside,
		"good": "/etc", "loop": "loop", "dangling": "/nowhere/x",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	return root, outside
}

func TestReadFile(t *testing.T) {
	root, _ := hostile(t)
	for name, tc := range map[string]struct {
		body string
		kind error
	}{
		"etc/passwd":             {"inside", nil},
		"/etc/passwd":            {"inside", nil},
		"../../etc/passwd":       {"inside", nil},
		"good/passwd":            {"inside", nil},
		"good/../etc/passwd":     {"inside", nil},
		"abs/secret":             {"", errdefs.ErrNotFound},
		"dots/secret":            {"", errdefs.ErrNotFound},
		"deep/secret":            {"", errdefs.ErrNotFound},
		"file":                   {"", errdefs.ErrNotFound},
		"procfs/secret":          {"", errdefs.ErrNotFound},
		"missing":                {"", fs.ErrNotExist},
		"loop":                   {"", errdefs.ErrInvalidArgument},
		"etc":                    {"", errdefs.ErrInvalidArgument},
		"fifo":                   {"", errdefs.ErrInvalidArgument}, // and no waiting for a writer
		"etc/passwd/x":           {"", errdefs.ErrInvalidArgument},
		strings.Repeat("a", 300): {"", errdefs.ErrInvalidArgument},
	} {
		b, err := ReadFile(root, name, 100)
		if string(b) != tc.body || !errors.Is(err, tc.kind) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := ReadFile(root, "etc/passwd", 5); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a file over the limit: %v", err)
	}
	if b, err := ReadFile(root, "etc/passwd", 6); err != nil || string(b) != "inside" {
		t.Errorf("a file at the limit: %q %v", b, err)
	}
}

func TestMakeInside(t *testing.T) {
	root, outside := hostile(t)
	for name, tc := range map[string]struct {
		at  string // where it has to appear
		bad bool
	}{
		"a/b/c":          {"a/b/c", false},
		"good/new":       {"etc/new", false},
		"../../up":       {"up", false},
		"abs/x":          {outside[1:] + "/x", true}, // the link leads nowhere inside
		"dangling":       {"", true},
		"dangling/x":     {"", true},
		"etc/passwd/sub": {"", true},
	} {
		for _, mk := range []func() error{
			func() error { return MkdirAll(root, name, 0o755) },
			func() error { return Touch(root, name+".file", 0o644) },
		} {
			err := mk()
			if tc.bad && name != "dangling" && err == nil {
				t.Errorf("%s: made", name)
			}
			if !tc.bad && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if tc.bad {
			continue
		}
		if info, err := os.Lstat(filepath.Join(root, tc.at)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Lstat(filepath.Join(root, tc.at+".file")); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s.file: %v", name, err)
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside: %v %v", entries, err)
	}
	if err := Touch(root, "etc/passwd", 0o644); err != nil {
		t.Errorf("touch of what exists: %v", err)
	}
	if err := MkdirAll(root, "/", 0o755); err != nil {
		t.Errorf("mkdir of the root: %v", err)
	}
}

func TestOpenPath(t *testing.T) {
	root, _ := hostile(t)
	f, err := OpenPath(root, "good")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		t.Errorf("stat: %v %v", info, err)
	}
	if _, err := f.Readdirnames(1); err == nil {
		t.Error("the descriptor can be read from")
	}
}
