package files

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/mounttest"
)

// node is a host with files.
func node(t *testing.T, all map[string]string) Root {
	t.Helper()
	r := Root(t.TempDir())
	for path, text := range all {
		at := filepath.Join(string(r), path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r Root) wants(t *testing.T, path, want string) {
	t.Helper()
	if got, err := r.Read(path); err != nil || string(got) != want || (got == nil) != (want == "") {
		t.Errorf("%s is %q, want %q: %v", path, got, want, err)
	}
}

func TestPut(t *testing.T) {
	r := node(t, map[string]string{"/etc/x": "old", "/opt/real": "linked"})
	if err := os.Symlink("/opt/real", r.Parent("/etc/link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Change{
		{"/etc/x", []byte("old"), []byte("new")},
		{"/etc/link", []byte("linked"), []byte("through the link")},
		{"/etc/made/for.d/y", nil, []byte("made")},
	} {
		if err := r.Put(c); err != nil {
			t.Error(err)
		}
		r.wants(t, c.Path, string(c.Data))
	}
	r.wants(t, "/opt/real", "through the link")
	if info, err := os.Stat(r.Real("/etc/x")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v: %v", info.Mode(), err)
	}
	if err := r.Put(Change{Path: "/etc/x", Old: []byte("new")}); err != nil {
		t.Error(err)
	}
	r.wants(t, "/etc/x", "")
	if err := r.Put(Change{Path: "/etc/x"}); err != nil {
		t.Errorf("what is gone cannot be taken away: %v", err)
	}
}

// What somebody writes between the plan and the write is not overwritten.
func TestNothingIsWrittenOverAnEdit(t *testing.T) {
	r := node(t, map[string]string{"/etc/x": "new"})
	for _, c := range []Change{
		{"/etc/x", []byte("old"), []byte("ours")},
		{"/etc/x", []byte("old"), nil},
		{"/etc/x", nil, []byte("ours")},
		{"/etc/x", []byte{}, []byte("ours")},
		{"/etc/y", []byte("old"), []byte("ours")},
	} {
		if err := r.Put(c); err == nil {
			t.Errorf("%+v was made", c)
		}
		r.wants(t, "/etc/x", "new")
		r.wants(t, "/etc/y", "")
	}
	if left, _ := filepath.Glob(r.Real("/etc") + "/" + Temporary); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestMissing(t *testing.T) {
	r := node(t, map[string]string{"/etc/x": ""})
	if got, err := r.Missing("/etc/a/b.d"); err != nil || !slices.Equal(got, []string{"/etc/a", "/etc/a/b.d"}) {
		t.Errorf("%q %v", got, err)
	}
	if got, err := r.Missing("/etc"); err != nil || len(got) > 0 {
		t.Errorf("%q %v", got, err)
	}
	if got, err := r.Missing("/etc/x/below"); err == nil {
		t.Errorf("below a file are %q", got)
	}
}

func TestSweep(t *testing.T) {
	r := node(t, map[string]string{"/etc/c/.fairlead-tmp-1": "", "/etc/.fairlead-tmp-2": "", "/etc/c/keep": "mine", "/.fairlead-tmp-3": ""})
	if err := r.Sweep([]string{"/etc/c/x"}); err != nil {
		t.Fatal(err)
	}
	r.wants(t, "/etc/c/keep", "mine")
	for path, want := range map[string]bool{"/etc/c/.fairlead-tmp-1": false, "/etc/.fairlead-tmp-2": false, "/.fairlead-tmp-3": true} {
		if _, err := os.Stat(r.Real(path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A runtime that reads all of a folder, whatever its name, never finds a file there that
// is being written.
func TestWrittenOutsideOfDropIns(t *testing.T) {
	for path, want := range map[string]string{
		"/etc/crio/crio.conf.d/99-fairlead-gvisor.conf": "/etc/crio",
		"/srv/crio/99-fairlead-gvisor.conf":             "/srv",
		"/etc/containerd/extra/fairlead-gvisor.toml":    "/etc/containerd",
		"/etc/systemd/system/x.service.d/50.conf":       "/etc/systemd/system",
		"/etc/containerd/config.toml":                   "/etc/containerd",
	} {
		if got := beside(path); got != want {
			t.Errorf("%s is written in %s, want %s", path, got, want)
		}
	}
}

func TestMkdirAll(t *testing.T) {
	r := node(t, map[string]string{"/etc/x": "", "/opt/real/x": ""})
	if err := os.Symlink("/opt/real", r.Parent("/etc/link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/var/lib/a/b": "/var/lib/a/b", "/etc": "/etc", "/etc/link/below": "/opt/real/below"} {
		if err := r.MkdirAll(path); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Join(string(r), want)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := r.MkdirAll("/etc/x/below"); err == nil {
		t.Error("a folder was made below a file")
	}
}

// A container may see a folder of drop-ins, and of what is above that nothing but its own root,
// which is read-only in the operator's pods.
func TestFolderThatIsAMount(t *testing.T) {
	for name, flags := range map[string]uintptr{"in a root of its own": 0, "in a read-only root": unix.MS_RDONLY} {
		t.Run(name, func(t *testing.T) {
			r := node(t, map[string]string{"/srv/x/conf.d/y": ""})
			mounttest.Private(t)
			at := r.Real("/srv/x")
			if err := errors.Join(
				unix.Mount("tmpfs", at, "tmpfs", 0, ""), os.Mkdir(at+"/conf.d", 0o755), unix.Mount("tmpfs", at+"/conf.d", "tmpfs", 0, ""),
				unix.Mount("", at, "", unix.MS_REMOUNT|flags, ""),
			); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = errors.Join(unix.Unmount(at+"/conf.d", unix.MNT_DETACH), unix.Unmount(at, unix.MNT_DETACH))
			})
			if err := r.Put(Change{"/srv/x/conf.d/fairlead-a.toml", nil, []byte("a")}); err != nil {
				t.Fatal(err)
			}
			r.wants(t, "/srv/x/conf.d/fairlead-a.toml", "a")
			for _, dir := range []string{at, at + "/conf.d"} {
				if left, _ := filepath.Glob(dir + "/" + Temporary); len(left) > 0 {
					t.Errorf("%v are left", left)
				}
			}
		})
	}
}

// On a full disk the old file stays, and nothing else.
func TestFullDisk(t *testing.T) {
	r := node(t, map[string]string{"/etc/x/conf.d/y": ""})
	mounttest.Private(t)
	at := r.Real("/etc/x")
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	small, big := []byte("small"), bytes.Repeat([]byte("x"), 1<<20)
	for _, c := range []Change{{"/etc/x/main", nil, small}, {"/etc/x/conf.d/fairlead-a.toml", nil, small}} {
		if err := r.Put(c); err != nil {
			t.Fatal(err)
		}
		if err := r.Put(Change{c.Path, small, big}); fault.Of(err) != payload.NoSpace {
			t.Errorf("%s: %v", c.Path, err)
		}
		r.wants(t, c.Path, "small")
		if err := r.Put(Change{c.Path + "2", nil, big}); fault.Of(err) != payload.NoSpace {
			t.Errorf("%s: %v", c.Path, err)
		}
		r.wants(t, c.Path+"2", "")
	}
	for _, dir := range []string{"/etc/x", "/etc/x/conf.d"} {
		if left, _ := filepath.Glob(r.Real(dir) + "/" + Temporary); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
}
