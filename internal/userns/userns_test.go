package userns

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// holder holds a namespace that maps 1000 ids from 0 to 50000, and a network.
func holder(t *testing.T) *Holder {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ids := []Range{{Inside: 0, Outside: 50000, Length: 1000}}
	h, err := Start(Spec{Program: []string{"/bin/sleep", "60"}, UIDs: ids, GIDs: ids, Others: unix.CLONE_NEWNET})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHolder(t *testing.T) {
	h := holder(t)
	pid := h.process.Pid
	content, err := os.ReadFile(strings.TrimSuffix(h.Path(""), "ns/") + "uid_map")
	if got := strings.Fields(string(content)); err != nil || strings.Join(got, " ") != "0 50000 1000" {
		t.Errorf("uid_map %q, %v", content, err)
	}
	for _, name := range []string{"user", "net"} {
		if a, err := os.Readlink(h.Path(name)); err != nil || a == mustReadlink(t, "/proc/self/ns/"+name) {
			t.Errorf("%s namespace %q, %v", name, a, err)
		}
	}
	net, err := os.Open(h.Path("net"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = net.Close() }()
	owner, err := unix.IoctlRetInt(int(net.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(owner) }()
	var user, of unix.Stat_t
	if err := errors.Join(unix.Stat(h.Path("user"), &user), unix.Fstat(owner, &of)); err != nil || user.Ino != of.Ino {
		t.Errorf("the network is that of user namespace %d and not %d: %v", of.Ino, user.Ino, err)
	}
	h.End()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("after End, process %d: %v", pid, err)
	}
}

func mustReadlink(t *testing.T, name string) string {
	t.Helper()
	to, err := os.Readlink(name)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestHolderWithoutProgram(t *testing.T) {
	for name, program := range map[string][]string{"none": nil, "missing": {"/nowhere/at/all"}} {
		if h, err := Start(Spec{Program: program}); err == nil {
			h.End()
			t.Errorf("%s: it started", name)
		}
	}
}

// A copy shows other owners than the original, and who writes through it as
// those leaves what the original's owner would.
func TestCopy(t *testing.T) {
	h := holder(t)
	defer h.End()
	dir, at := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.Chown(filepath.Join(dir, "file"), 7, 8)); err != nil {
		t.Fatal(err)
	}
	tree, err := Copy(dir, h.Path("user"), Options{Below: true, Propagation: unix.MS_PRIVATE})
	if errors.Is(err, errdefs.ErrUnimplemented) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = tree.Attach(at)
	tree.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(at, "file"), &st); err != nil || st.Uid != 50007 || st.Gid != 50008 {
		t.Errorf("in the copy it belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if err := os.Chown(filepath.Join(at, "file"), 50001, 50002); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(filepath.Join(dir, "file"), &st); err != nil || st.Uid != 1 || st.Gid != 2 {
		t.Errorf("in the original it belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
}

func TestCopyRefusals(t *testing.T) {
	h := holder(t)
	defer h.End()
	for name, tc := range map[string]struct {
		path, ns string
		want     error
	}{
		"a file system without mappings": {"/proc", h.Path("user"), errdefs.ErrUnimplemented},
		"no such path":                   {filepath.Join(t.TempDir(), "none"), h.Path("user"), os.ErrNotExist},
		"no such namespace":              {t.TempDir(), filepath.Join(t.TempDir(), "none"), os.ErrNotExist},
	} {
		if tree, err := Copy(tc.path, tc.ns, Options{}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v", name, tree, err)
		}
	}
}
