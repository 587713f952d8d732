package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
)

// bind mounts from onto to, as a runtime does, until the test ends.
func bind(t *testing.T, from, to string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
}

// mountsBelow lists what is mounted below a folder.
func mountsBelow(t *testing.T, dir string) (out []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if rest, below := strings.CutPrefix(m.Mountpoint, dir+"/"); below {
			out = append(out, rest)
		}
	}
	slices.Sort(out)
	return out
}

// write makes files and the folders that they are in.
func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// killedRunc is the state folder of a handler with what is left of container c1,
// whose runc was killed between mounting itself and unmounting that, and then
// while it restored; beside it, a container that is none of its business. What a
// restore mounts has a volume in it.
func killedRunc(t *testing.T, root string) (rootfs string) {
	t.Helper()
	rootfs, volume, program := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "runc")
	write(t, filepath.Dir(program), "runc")
	write(t, rootfs, "etc/passwd", "data/.keep")
	write(t, volume, "precious")
	write(t, root, "c1/state.json", "c1/runc.7YhRtq", "c1/criu-root/.keep", "c10/runc.AAAAAA", "c1-2/runc.BBBBBB")
	bind(t, volume, filepath.Join(rootfs, "data"))
	bind(t, program, filepath.Join(root, "c1/runc.7YhRtq"))
	bind(t, program, filepath.Join(root, "c1/runc.7YhRtq")) // two on one file
	bind(t, rootfs, filepath.Join(root, "c1/criu-root"))
	bind(t, program, filepath.Join(root, "c10/runc.AAAAAA"))
	bind(t, program, filepath.Join(root, "c1-2/runc.BBBBBB"))
	return rootfs
}

// A runtime that is killed leaves mounts in a container's folder. They go with
// the folder, whoever deletes it, with nothing of what is in them, and no others.
func TestDeleteUnmounts(t *testing.T) {
	for name, tt := range map[string]struct {
		runtime string
		program string // what the runtime does; the folder is $dir
		bundle  bool
	}{
		"by us":                      {"runc", "", true},
		"by the runtime":             {"other", `rm -r "$dir"`, true},
		"the runtime knows it not":   {"", `rm -r "$dir"; echo '{"level":"error","msg":"container does not exist"}' >&2; exit 1`, false},
		"the runtime fails at first": {"other", `case "$*" in *--force*) rm -r "$dir";; *) exit 1;; esac`, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			link := filepath.Join(t.TempDir(), "link") // as /var/run is
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			d, err := New(Config{StateDir: link, Monitor: &fakeMonitor{}})
			if err != nil {
				t.Fatal(err)
			}
			def := runtime.Definition{Name: "x", Handler: v1alpha1.Handler{Path: filepath.Join(dir, "program")}}
			root := d.root(def)
			text := "#!/bin/sh\ndir=" + root + "/c1\n[ -d $dir ] || exit 0\n" + tt.program + "\n"
			if err := os.WriteFile(def.Handler.Path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			rootfs := killedRunc(t, root)
			h := d.Open(def, func() pod.HandlerInfo { return pod.HandlerInfo{Runtime: tt.runtime} })
			if tt.bundle {
				write(t, h.folder("c1"), "config.json")
				if err := os.WriteFile(filepath.Join(h.folder("c1"), "config.json"), []byte(`{"linux":{"cgroupsPath":"/fairlead-test/none"}}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second time there is nothing
				if err := h.Delete(t.Context(), "c1"); err != nil {
					t.Fatal(err)
				}
			}
			if exists(filepath.Join(root, "c1")) {
				t.Error("the folder is left")
			}
			if got, want := mountsBelow(t, root), []string{"c1-2/runc.BBBBBB", "c10/runc.AAAAAA"}; !slices.Equal(got, want) {
				t.Errorf("mounted: %q, want %q", got, want)
			}
			if !exists(filepath.Join(rootfs, "etc/passwd")) || !exists(filepath.Join(rootfs, "data/precious")) {
				t.Error("what was mounted was deleted")
			}
		})
	}
}

// An audit removes what the runtime does not know any more, and nobody's program is
// left for.
func TestDropUnmounts(t *testing.T) {
	d := testDriver(t)
	k := Keeper{Driver: d}
	root := filepath.Join(d.cfg.StateDir, "runtimes", "gone")
	rootfs := killedRunc(t, root)
	if err := k.Drop(t.Context(), pod.Held{Kind: pod.KindState, Name: filepath.Join(root, "c1"), Owner: "c1"}); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(root, "c1")) || !exists(filepath.Join(rootfs, "etc/passwd")) || len(mountsBelow(t, root)) != 2 {
		t.Errorf("the folder is left: %t; mounted: %q", exists(filepath.Join(root, "c1")), mountsBelow(t, root))
	}
}

// Folders that are none, or another's, are left as they are.
func TestUnmountLeftStays(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, "file")
	write(t, root, "a-file", "on/inner", "empty/x")
	if err := os.Remove(filepath.Join(root, "empty/x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(root, "a-link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gone", "a-file", "empty", "a-link"} {
		if err := unmountLeft(root, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"..", ".", "", "a/b", "on/../../x"} {
		if err := unmountLeft(root, name); err == nil {
			t.Errorf("%q is a container", name)
		}
	}
	bind(t, filepath.Join(root, "a-file"), filepath.Join(elsewhere, "file"))
	bind(t, filepath.Join(root, "on"), filepath.Join(root, "on"))
	for _, name := range []string{"a-link", "on"} {
		if err := unmountLeft(root, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a, b := mountsBelow(t, root), mountsBelow(t, elsewhere); len(a) != 1 || len(b) != 1 {
		t.Errorf("mounted: %q %q", a, b)
	}
}

// A start that was killed before the container had a state is not in the way of
// the next one, nor of deleting the container.
func TestStartAfterAKill(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		for left, mounted := range map[string]bool{"a mount": true, "an empty folder": false} {
			t.Run(name+" with "+left, func(t *testing.T) {
				m, state := newMonitor(t)
				d, err := New(Config{StateDir: state, Monitor: m, StandIn: monitorBinary})
				if err != nil {
					t.Fatal(err)
				}
				h, err := registry(t, d, name).Get(name)
				if err != nil {
					t.Skip(err)
				}
				id := string(pod.NewContainerID())
				folder := filepath.Join(h.tool.root, id)
				if err := os.MkdirAll(folder, 0o700); err != nil {
					t.Fatal(err)
				}
				if mounted {
					write(t, folder, "runc.7YhRtq")
					bind(t, monitorBinary, filepath.Join(folder, "runc.7YhRtq"))
				}
				bundle := sleeper(t, state, id, h.Info().OCI)
				if _, err := h.Start(t.Context(), pod.StartRequest{ID: id, Bundle: pod.Bundle{Path: bundle}}); err != nil {
					t.Error(err)
				}
				if err := h.Delete(t.Context(), id); err != nil {
					t.Error(err)
				}
				if _, err := m.Wait(t.Context(), id); err != nil {
					t.Error(err)
				}
				if err := m.Forget(t.Context(), id); err != nil {
					t.Error(err)
				}
				if exists(folder) || len(mountsBelow(t, h.tool.root)) > 0 {
					t.Errorf("the folder is left: %t; mounted: %q", exists(folder), mountsBelow(t, h.tool.root))
				}
			})
		}
	}
}
