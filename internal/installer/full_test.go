package installer

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
)

// The disk of the journal is full when a change fails, or when it is to be noted: all is put
// back as ever, the result says that this was not noted, and the next installer goes on.
func TestJournalThatCannotBeWritten(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, n *node) payload.InstallResult{
		"install": func(t *testing.T, n *node) payload.InstallResult {
			return n.installer().Install(t.Context(), sources([]string{bundle(t, "test", "1", "1")}))[0]
		},
		"failed check": func(t *testing.T, n *node) payload.InstallResult {
			dir := bundle(t, "test", "1", "1")
			withCheck(t, dir)
			return n.installer().Install(t.Context(), sources([]string{dir}))[0]
		},
		"upgrade": func(t *testing.T, n *node) payload.InstallResult {
			return n.installer().Install(t.Context(), sources([]string{bundle(t, "good", "2", "2")}))[0]
		},
		"uninstall": func(t *testing.T, n *node) payload.InstallResult {
			if err := failpoint.Enable("install.unserved=error"); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = failpoint.Enable("") }()
			return n.installer().Uninstall(t.Context(), "good")
		},
	} {
		t.Run(name, func(t *testing.T) {
			releases(t, func(t *testing.T, n *node) { withFullJournal(t, n, change) })
		})
	}
}

func withFullJournal(t *testing.T, n *node, change func(t *testing.T, n *node) payload.InstallResult) {
	t.Helper()
	n.install(bundle(t, "good", "1", "1"))
	disk := n.path("var/lib/fairlead-installer")
	kept := n.tree("var/lib/fairlead-installer")
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("root is needed to mount a small disk: %v", err)
	}
	defer func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) }()
	for path, text := range kept {
		if mode, data, ok := strings.Cut(text, "\n"); ok && !strings.HasPrefix(mode, "d") {
			n.write(path, data)
		}
	}
	before, usr := n.tree("etc"), n.tree("usr")
	fill := filepath.Join(disk, "fill")
	n.onRestart = func() {
		n.onRestart = nil
		f, err := os.Create(fill)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		_ = f.Close()
	}
	r := change(t, n)
	if r.State != payload.RolledBack || !strings.Contains(r.Message, "journal could not be written") {
		t.Errorf("%+v", r)
	}
	n.serves("runc", "foreign", "good")
	n.same(before, "etc")
	n.same(usr, "usr")
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	n.install(bundle(t, "test", "3", "3"))
	n.serves("runc", "foreign", "good", "test")
	n.uninstall("test", "good")
	n.serves("runc", "foreign")
}
