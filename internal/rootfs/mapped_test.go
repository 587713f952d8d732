package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/userns"
)

// mapping is one in which 0 to 999 are 50000 to 50999, and for groups 60000 to
// 60999.
func mapping(t *testing.T) *Mapping {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	h, err := userns.Start(userns.Spec{
		Program: []string{"/bin/sleep", "300"},
		UIDs:    []userns.Range{{Outside: 50000, Length: 1000}}, GIDs: []userns.Range{{Outside: 60000, Length: 1000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.End)
	return &Mapping{UserNS: h.Path("user"), IDs: &pod.UserNamespace{
		UIDs: []pod.IDMapping{{HostID: 50000, Length: 1000}}, GIDs: []pod.IDMapping{{HostID: 60000, Length: 1000}},
	}}
}

func wantOwner(t *testing.T, path string, uid, gid uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Error(err)
	} else if st.Uid != uid || st.Gid != gid {
		t.Errorf("%s belongs to %d:%d, want %d:%d", path, st.Uid, st.Gid, uid, gid)
	}
}

// Both ways to mount mapped layers have to do the same: files of the image belong
// to the pod's ids, and what is changed is written with these. The image stays
// as it is.
func TestMapped(t *testing.T) {
	m := mapping(t)
	for name, method := range map[string]func(layers, string, string) error{
		"trees": layers.mountTrees, "apart": layers.mountApart, "either": layers.mountMapped,
		// As on a kernel before 6.15, where the first way fails when it is nearly done.
		"one after the other": func(l layers, target, ns string) error {
			broken := layers{lower: append([]string{l.upper}, l.lower...), upper: l.upper, work: l.work}
			if err := broken.mountTrees(target, ns); err == nil {
				return errors.New("a layer is its own upper one")
			}
			return l.mountMapped(target, ns)
		},
	} {
		for _, n := range []int{1, 120} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				s := newSpec(t, n)
				s.Mapping = m
				upper, work, err := s.writable()
				if err == nil {
					err = errors.Join(os.MkdirAll(s.Target, 0o755), os.Chown(filepath.Join(s.Lower[0], "all"), 7, 8))
				}
				if err != nil {
					t.Fatal(err)
				}
				before := mountCount(t)
				err = method(layers{lower: s.Lower, upper: upper, work: work}, s.Target, m.UserNS)
				if errors.Is(err, errMethod) || errors.Is(err, errdefs.ErrUnimplemented) {
					t.Skipf("this kernel cannot: %v", err)
				} else if err != nil {
					t.Fatal(err)
				}
				if more := mountCount(t) - before; more != 1 {
					t.Errorf("there are %d more mounts", more)
				}
				all := filepath.Join(s.Target, "all")
				wantOwner(t, s.Target, 50000, 60000)
				wantOwner(t, all, 50007, 60008)
				if err := os.WriteFile(all, []byte("changed"), 0o644); err != nil {
					t.Fatal(err)
				}
				wantOwner(t, all, 50007, 60008)
				wantOwner(t, filepath.Join(upper, "all"), 50007, 60008)
				wantOwner(t, filepath.Join(s.Lower[0], "all"), 7, 8)
				readFile(t, filepath.Join(s.Target, fmt.Sprint("only-", n-1)))
			})
		}
	}
}

func mountCount(t *testing.T) int {
	t.Helper()
	list, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(list), "\n")
}

func TestCanMap(t *testing.T) {
	m, dir := mapping(t), t.TempDir()
	if err := CanMap(t.Context(), dir, m); errors.Is(err, errdefs.ErrUnimplemented) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	cutOff := newSpec(t, 1)
	cutOff.Dir, cutOff.Target = filepath.Join(dir, "mapping-trial"), filepath.Join(dir, "mapping-trial", "root")
	for _, err := range []error{Mount(t.Context(), cutOff), CanMap(t.Context(), dir, m)} {
		if err != nil {
			t.Errorf("after a trial that was cut off: %v", err)
		}
	}
	wrong := *m
	wrong.IDs = &pod.UserNamespace{UIDs: m.IDs.GIDs, GIDs: m.IDs.UIDs}
	if err := CanMap(t.Context(), dir, &wrong); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Errorf("with owners other than the namespace's: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestMappedRoots(t *testing.T) {
	m := mapping(t)
	s := newSpec(t, 2)
	state, source := t.TempDir(), t.TempDir()
	write(t, filepath.Join(source, "file"), "content")
	r, err := New(state, t.TempDir(), plain)
	if err != nil {
		t.Fatal(err)
	}
	of := &pod.Record{Sandbox: pod.Sandbox{UserNS: m.UserNS}}
	of.Config.Security.Namespaces.User = m.IDs
	id := pod.NewContainerID()
	root, err := r.Mount(t.Context(), of, id, s.Lower, "")
	if errors.Is(err, errdefs.ErrUnimplemented) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Remove(t.Context(), id) }()
	wantOwner(t, filepath.Join(root, "all"), 50000, 60000)
	folder := filepath.Dir(root)
	wantOwner(t, folder, 0, 60000)
	for path, mode := range map[string]os.FileMode{folder: 0o710, filepath.Dir(folder): 0o711, state: 0o711} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", path, st.Mode().Perm(), err, mode)
		}
	}
	for i, from := range []string{source, filepath.Join(source, "file")} {
		req := pod.MapRequest{Container: id, Index: i, Source: from, UserNS: m.UserNS}
		at, err := r.Map(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		wantOwner(t, at, 50000, 60000)
		if again, err := r.Map(t.Context(), req); again != at || err != nil {
			t.Errorf("a second time: %s, %v", again, err)
		}
		c := &pod.Container{ID: id, State: pod.Running}
		c.Config.Mounts = []pod.Mount{{}, {}}
		c.Config.Mounts[i].UIDMappings = m.IDs.UIDs
		wants := Keeper{Roots: r}.Wants(&pod.Record{Containers: []*pod.Container{c}})
		if len(wants) != 3 || wants[2].Name != at {
			t.Errorf("an audit wants %v", wants)
		}
	}
	if err := r.Unmount(t.Context(), id); err != nil {
		t.Error(err)
	}
	if left, err := List(state); err != nil || len(left) > 0 {
		t.Errorf("left mounted %v, %v", left, err)
	}
	if got := readFile(t, filepath.Join(source, "file")); got != "content" {
		t.Errorf("the source has %q", got)
	}
}

// A pod without a user namespace has folders that nobody else gets into, whoever
// had made them.
func TestRootsAreClosed(t *testing.T) {
	s := newSpec(t, 1)
	state := t.TempDir()
	r, err := New(state, t.TempDir(), plain)
	if err != nil {
		t.Fatal(err)
	}
	id := pod.NewContainerID()
	folder := filepath.Join(state, "containers", string(id))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Mount(t.Context(), &pod.Record{}, id, s.Lower, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Remove(t.Context(), id) }()
	if st, err := os.Stat(folder); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode().Perm(), err)
	}
}
