package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/installer/mounttest"
)

// A container sees of a node only what is mounted. What leads elsewhere by a link is refused
// before anything is changed: the runtime would never read it.
func TestOnlyWhatIsMountedIsWritten(t *testing.T) {
	node, here := t.TempDir(), t.TempDir()
	for _, dir := range []string{node + "/etc/crio/kept.d", node + "/etc/more", node + "/srv/conf.d", node + "/opt/whole", here + "/etc/crio", here + "/opt/whole"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"/etc/crio/away.d": "/srv/conf.d", "/etc/crio/within.d": "kept.d", "/etc/crio/file.conf": "/srv/file.conf"} {
		if err := os.Symlink(to, node+link); err != nil {
			t.Fatal(err)
		}
	}
	mounttest.Private(t)
	for _, dir := range []string{"/etc/crio", "/opt/whole"} {
		if err := unix.Mount(node+dir, here+dir, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(here+dir, unix.MNT_DETACH) }) // the folder goes next
	}
	for path, want := range map[string]bool{
		"/etc/crio/crio.conf":     true,
		"/etc/crio/kept.d/x":      true,
		"/etc/crio/within.d/x":    true,
		"/etc/crio/not/there.d/x": true,
		"/opt/whole/x":            true,
		"/etc/crio/away.d/x":      false,
		"/etc/crio/file.conf":     false,
		"/etc/more/x":             false,
		"/none/x":                 false,
	} {
		if err := mounted(node, here, path); (err == nil) != want || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if err := mounted(node, filepath.Join(node, "."), path); err != nil {
			t.Errorf("%s, where all is seen: %v", path, err)
		}
	}
}
