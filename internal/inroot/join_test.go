package inroot

import (
	"os"
	"path/filepath"
	"testing"
)

func TestJoin(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "opt/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"etc": "/opt/etc", "out": "../../../../etc", "opt/etc/file": "/etc/real", "opt/etc/gone": "/no/where", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][2]string{
		"/":             {"", ""},
		"/opt":          {"opt", "opt"},
		"/etc":          {"opt/etc", "etc"},
		"/etc/x/y":      {"opt/etc/x/y", "opt/etc/x/y"},
		"/etc/file":     {"opt/etc/real", "opt/etc/file"},
		"/etc/gone":     {"no/where", "opt/etc/gone"},
		"/out/passwd":   {"opt/etc/passwd", "opt/etc/passwd"},
		"/../etc/file":  {"opt/etc/real", "opt/etc/file"},
		"relative/path": {"relative/path", "relative/path"},
		"/loop":         {"loop", "loop"},
	} {
		if got := Join(root, name); got != filepath.Join(root, want[0]) {
			t.Errorf("Join(%q) is %s, want %s", name, got, want[0])
		}
		if got := JoinParent(root, name); got != filepath.Join(root, want[1]) {
			t.Errorf("JoinParent(%q) is %s, want %s", name, got, want[1])
		}
	}
	if got := Join("", "/proc/self/"); got != filepath.Join("/proc", filepath.Base(got)) {
		t.Errorf("of the root itself it is %s", got)
	}
}
