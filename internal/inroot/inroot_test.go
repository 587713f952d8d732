package inroot

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
	for name, body := range map[string]string{filepath.Join(outside, "secret"): "secret", filepath.Join(root, "etc/passwd"): "inside"} {
		if err := os.WriteFile(name, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"abs": outside, "dots": "../outside", "deep": strings.Repeat("../", 40) + outside[1:],
		"file": filepath.Join(outside, "secret"), "procfs": "/proc/self/root" + outside, "good": "/etc", "loop": "loop", "dangling": "/nowhere/x",
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
		"/etc/passwd":            {"inside", nil},
		"../../etc/passwd":       {"inside", nil},
		"good/../etc/passwd":     {"inside", nil},
		"good/passwd":            {"inside", nil},
		"file":                   {"", errdefs.ErrNotFound},
		"etc/passwd/x":           {"", errdefs.ErrInvalidArgument},
		"abs/secret":             {"", errdefs.ErrNotFound},
		"dots/secret":            {"", errdefs.ErrNotFound},
		"deep/secret":            {"", errdefs.ErrNotFound},
		"procfs/secret":          {"", errdefs.ErrNotFound},
		"missing":                {"", fs.ErrNotExist},
		"loop":                   {"", errdefs.ErrInvalidArgument},
		"etc":                    {"", errdefs.ErrInvalidArgument},
		"fifo":                   {"", errdefs.ErrInvalidArgument}, // and no waiting for a writer
		"nul\x00":                {"", errdefs.ErrInvalidArgument},
		strings.Repeat("a", 300): {"", errdefs.ErrInvalidArgument},
	} {
		b, err := ReadFile(root, name, 100)
		if string(b) != tc.body || !errors.Is(err, tc.kind) {
			t.Errorf("%q: %q, %v", name, b, err)
		}
	}
	if _, err := ReadFile(root, "etc/passwd", 5); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a file over the limit: %v", err)
	}
	if b, err := ReadFile(root, "etc/passwd", 6); err != nil || string(b) != "inside" {
		t.Errorf("a file at the limit: %q %v", b, err)
	}
}

func TestMkdirAll(t *testing.T) {
	root, outside := hostile(t)
	for name, want := range map[string]string{
		"/a/b/c": "a/b/c", "good/x": "etc/x", "../up": "up", "/": "",
	} {
		err := MkdirAll(root, name, Folder{Mode: 0o755})
		if info, serr := os.Lstat(filepath.Join(root, want)); err != nil || serr != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", name, err, serr)
		}
	}
	for _, name := range []string{"dangling/a", "etc/passwd/a", "loop/a", "abs/made", "dots/made"} {
		if err := MkdirAll(root, name, Folder{Mode: 0o755}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, _ := os.ReadDir(outside); len(list) != 1 {
		t.Errorf("made something outside: %v", list)
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
