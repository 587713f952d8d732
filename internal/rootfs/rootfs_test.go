package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
}

// newSpec makes n layers; each has a file of its own, and one that all have.
func newSpec(t *testing.T, n int) Spec {
	t.Helper()
	needRoot(t)
	base := t.TempDir()
	if err := CheckDir(base); err != nil {
		t.Skipf("needs another TMPDIR: %v", err)
	}
	s := Spec{Dir: filepath.Join(base, "dir"), Target: filepath.Join(base, "target")}
	for i := range n {
		dir := filepath.Join(base, "layers", fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, fmt.Sprint("only-", i)), "")
		write(t, filepath.Join(dir, "all"), fmt.Sprint(i))
		s.Lower = append(s.Lower, dir)
	}
	t.Cleanup(func() {
		if err := Unmount(context.Background(), s.Target); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mount(t *testing.T, s Spec) {
	t.Helper()
	if err := Mount(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func TestMount(t *testing.T) {
	for _, n := range []int{1, 3, 120} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newSpec(t, n)
			mount(t, s)
			if got := readFile(t, filepath.Join(s.Target, "all")); got != "0" {
				t.Errorf("file of layer %s on top, want the first one's", got)
			}
			readFile(t, filepath.Join(s.Target, fmt.Sprint("only-", n-1)))
			write(t, filepath.Join(s.Target, "all"), "changed")
			if got := readFile(t, filepath.Join(s.Lower[0], "all")); got != "0" {
				t.Error("a write reached the image")
			}
		})
	}
}

// Every way to mount has to do the same, whichever this kernel prefers.
func TestMethods(t *testing.T) {
	for name, method := range map[string]func(layers, string) error{
		"descriptor": mountByDescriptor, "path": mountByPath, "options": mountByOptions,
	} {
		for _, n := range []int{1, 120} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				s := newSpec(t, n)
				upper, work, err := s.writable()
				if err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(s.Target, 0o755); err != nil {
					t.Fatal(err)
				}
				if n > 100 && len(layers{lower: s.Lower}.options(s.Lower)) < os.Getpagesize() {
					t.Fatal("the options are too short for what this is to test")
				}
				if err := method(layers{lower: s.Lower, upper: upper, work: work}, s.Target); errors.Is(err, errMethod) {
					t.Skipf("this kernel cannot: %v", err)
				} else if err != nil {
					t.Fatal(err)
				}
				if got := readFile(t, filepath.Join(s.Target, "all")); got != "0" {
					t.Errorf("file of layer %s on top", got)
				}
				readFile(t, filepath.Join(s.Target, fmt.Sprint("only-", n-1)))
			})
		}
	}
}

func TestMountOddPaths(t *testing.T) {
	for name, method := range map[string]func(layers, string) error{
		"descriptor": mountByDescriptor, "path": mountByPath, "options": mountByOptions,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpec(t, 1)
			odd := filepath.Join(filepath.Dir(s.Dir), "a:b,c=d e")
			if err := os.Mkdir(odd, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(odd, "odd"), "yes")
			s.Dir = filepath.Join(odd, "dir")
			s.Lower = append(s.Lower, odd)
			upper, work, err := s.writable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(s.Target, 0o755); err != nil {
				t.Fatal(err)
			}
			// The layer holds the writable one, which overlay only warns about.
			if err := method(layers{lower: s.Lower, upper: upper, work: work}, s.Target); errors.Is(err, errMethod) {
				t.Skipf("this kernel cannot: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			readFile(t, filepath.Join(s.Target, "odd"))
		})
	}
}

func TestMountTwice(t *testing.T) {
	s := newSpec(t, 2)
	mount(t, s)
	write(t, filepath.Join(s.Target, "mine"), "kept")
	mount(t, s)
	if err := Unmount(t.Context(), s.Target); err != nil {
		t.Fatal(err)
	}
	if left, err := List(s.Target); err != nil || len(left) != 0 {
		t.Errorf("one unmount left %v (%v): it was mounted twice", left, err)
	}
	mount(t, s) // the mark that a volatile mount leaves must not stop this
	if got := readFile(t, filepath.Join(s.Target, "mine")); got != "kept" {
		t.Errorf("the container's file is %q after another mount", got)
	}
}

func TestMountIsVolatile(t *testing.T) {
	s := newSpec(t, 1)
	mount(t, s)
	if _, err := os.Stat(filepath.Join(s.Dir, "work/work/incompat/volatile")); err != nil {
		t.Skipf("this kernel has no volatile overlay: %v", err)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if strings.Contains(line, s.Target) && !strings.Contains(line, "volatile") {
			t.Errorf("not volatile: %s", line)
		}
	}
}

func TestMountReadOnly(t *testing.T) {
	for _, n := range []int{1, 2} {
		s := newSpec(t, n)
		s.ReadOnly = true
		mount(t, s)
		if got := readFile(t, filepath.Join(s.Target, "all")); got != "0" {
			t.Errorf("%d layers: file of layer %s on top", n, got)
		}
		if err := os.WriteFile(filepath.Join(s.Target, "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("%d layers: write: %v", n, err)
		}
	}
}

// The writable layer's root hides the image's: it has to look the same.
func TestMountKeepsRootAttributes(t *testing.T) {
	s := newSpec(t, 1)
	if err := os.Chown(s.Lower[0], 12, 34); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(s.Lower[0], 0o1750); err != nil {
		t.Fatal(err)
	}
	mount(t, s)
	var st unix.Stat_t
	if err := unix.Stat(s.Target, &st); err != nil || st.Uid != 12 || st.Gid != 34 || st.Mode&0o7777 != 0o1750 {
		t.Errorf("root: %d:%d %o (%v)", st.Uid, st.Gid, st.Mode&0o7777, err)
	}
}

func TestUnmountBusy(t *testing.T) {
	s := newSpec(t, 1)
	mount(t, s)
	f, err := os.Open(filepath.Join(s.Target, "all"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for range 2 { // the second one finds nothing to do
		if err := Unmount(t.Context(), s.Target); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := List(s.Target); len(left) != 0 {
		t.Errorf("still mounted: %v", left)
	}
	if err := Unmount(t.Context(), "/nowhere/at/all"); err != nil {
		t.Errorf("unmount of what does not exist: %v", err)
	}
}

func TestMountErrors(t *testing.T) {
	needRoot(t)
	gone := newSpec(t, 1)
	gone.Lower[0] += "-gone"
	relative := newSpec(t, 1)
	relative.Lower[0] = "x"
	onOverlay := newSpec(t, 1)
	outer := newSpec(t, 1)
	mount(t, outer)
	onOverlay.Dir = filepath.Join(outer.Target, "dir")
	for name, tc := range map[string]struct {
		spec Spec
		kind error
		text string
	}{
		"no layers":   {Spec{Dir: "/d", Target: "/t"}, errdefs.ErrInvalidArgument, "no layers"},
		"relative":    {relative, errdefs.ErrInvalidArgument, "not absolute"},
		"gone":        {gone, unix.ENOENT, "pull it again"},
		"on overlay":  {onOverlay, errdefs.ErrPrecondition, "--root"},
		"target file": {Spec{Lower: gone.Lower, Dir: gone.Dir, Target: "/dev/null/x"}, unix.ENOTDIR, ""},
	} {
		err := Mount(t.Context(), tc.spec)
		if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v", name, err)
		}
		if tc.spec.Target != "/t" {
			if left, _ := List(tc.spec.Target); len(left) != 0 {
				t.Errorf("%s: left mounted: %v", name, left)
			}
		}
	}
}

// Where overlay finds no room for its scratch space, it mounts all the same, and nothing can
// be written. Such a root file system is none, and when there is room it is made.
func TestMountWithoutRoom(t *testing.T) {
	s := newSpec(t, 2)
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The folder, and those of the writable layer and the scratch space.
	if err := unix.Mount("tmpfs", s.Dir, "tmpfs", 0, "nr_inodes=3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(Unmount(context.Background(), s.Target), unix.Unmount(s.Dir, 0)); err != nil {
			t.Error(err)
		}
	})
	err := Mount(t.Context(), s)
	if !errors.Is(err, unix.ENOSPC) || !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), s.Dir) {
		t.Errorf("mount without room: %v", err)
	}
	if left, err := List(s.Target); err != nil || len(left) > 0 {
		t.Errorf("left mounted: %v, %v", left, err)
	}
	if err := unix.Mount("", s.Dir, "", unix.MS_REMOUNT, "nr_inodes=100"); err != nil {
		t.Fatal(err)
	}
	mount(t, s)
	write(t, filepath.Join(s.Target, "new"), "")
}

func TestRoots(t *testing.T) {
	s := newSpec(t, 2)
	state, root := t.TempDir(), t.TempDir()
	r, err := New(state, root, plain)
	if err != nil {
		t.Fatal(err)
	}
	id := pod.NewContainerID()
	t.Cleanup(func() { _ = r.Remove(context.Background(), id) })
	path, err := r.Mount(t.Context(), &pod.Record{}, id, s.Lower, "")
	if err != nil || path != filepath.Join(state, "containers", string(id), "rootfs") {
		t.Fatalf("mount: %q %v", path, err)
	}
	write(t, filepath.Join(path, "big"), strings.Repeat("x", 1<<20))
	if n, inodes, err := r.Usage(t.Context(), id); err != nil || n < 1<<20 || inodes != 2 {
		t.Errorf("usage: %d bytes, %d inodes, %v", n, inodes, err)
	}
	if l, err := r.Leftovers(nil); err != nil || len(l) != 1 || l[0] != id {
		t.Errorf("leftovers: %v %v", l, err)
	}
	if l, err := r.Leftovers(map[pod.ContainerID]bool{id: true}); err != nil || len(l) != 0 {
		t.Errorf("leftovers with the container alive: %v %v", l, err)
	}
	for range 2 {
		if err := r.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{path, filepath.Join(root, "containers", string(id))} {
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", p, err)
		}
	}
	for _, bad := range []pod.ContainerID{"", ".", "..", "a/b"} {
		if _, err := r.Mount(t.Context(), &pod.Record{}, bad, s.Lower, ""); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("id %q: %v", bad, err)
		}
	}
}

func TestRemoveImmutable(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "dir")
	file := filepath.Join(dir, "sub", "f")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file, "")
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0x10)
	_ = f.Close()
	if err != nil {
		t.Skipf("this file system has no immutable files: %v", err)
	}
	if err := Remove(t.Context(), dir); err != nil {
		_ = clearFlags(dir)
		t.Fatal(err)
	}
}

func BenchmarkMountUnmount(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: it mounts")
	}
	base := b.TempDir()
	lower := []string{}
	for i := range 5 {
		dir := filepath.Join(base, "l", fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		lower = append(lower, dir)
	}
	r, err := New(base, base, plain)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		id := pod.NewContainerID()
		if _, err := r.Mount(b.Context(), &pod.Record{}, id, lower, ""); err != nil {
			b.Fatal(err)
		}
		if err := r.Remove(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
}

// A label has commas, and is one option all the same.
func TestOptionsWithLabel(t *testing.T) {
	l := layers{lower: []string{"/l"}, upper: "/u", work: "/w", label: "u:object_r:t:s0:c1,c2"}
	want := `index=off,lowerdir=/l,upperdir=/u,workdir=/w,context="u:object_r:t:s0:c1,c2",volatile`
	if got := l.options(l.lower); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Every way to mount has to label, whichever this kernel prefers.
func TestMethodsLabel(t *testing.T) {
	process, err := os.ReadFile("/proc/self/attr/current")
	if _, missing := os.Stat("/sys/fs/selinux/enforce"); missing != nil || err != nil || string(process) == "kernel\x00" {
		t.Skip("needs SELinux, and a policy loaded")
	}
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	for name, method := range map[string]func(layers, string) error{
		"descriptor": mountByDescriptor, "path": mountByPath, "options": mountByOptions,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpec(t, 2)
			upper, work, err := s.writable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(s.Target, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := method(layers{lower: s.Lower, upper: upper, work: work, label: label}, s.Target); errors.Is(err, errMethod) {
				t.Skipf("this kernel cannot: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(s.Target, "new"), "")
			for _, file := range []string{".", "all", "new"} {
				got := make([]byte, 256)
				n, err := unix.Getxattr(filepath.Join(s.Target, file), "security.selinux", got)
				if err != nil || strings.TrimRight(string(got[:max(n, 0)]), "\x00") != label {
					t.Errorf("%s has the label %q (%v)", file, got[:max(n, 0)], err)
				}
			}
		})
	}
}
