package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// withUser is a pod with those namespaces and a user namespace, if it has none
// yet: 0 to 999 are 50000 to 50999, and for groups 60000 to 60999.
func withUser(n pod.Namespaces) pod.Config {
	if n.User == nil {
		n.User = &pod.UserNamespace{
			UIDs: []pod.IDMapping{{HostID: 50000, Length: 1000}},
			GIDs: []pod.IDMapping{{HostID: 60000, Length: 1000}},
		}
	}
	return pod.Config{Hostname: "mapped", Security: pod.Security{Namespaces: n}}
}

var waiter = []string{"/bin/sleep", "60"}

func TestUserNamespace(t *testing.T) {
	d := driver(t, Config{Waiter: waiter, Sysctls: UnprivilegedSysctls()})
	c := withUser(pod.Namespaces{})
	c.Sysctls = map[string]string{"kernel.shmmax": "123456"}
	id, s := create(t, d, &c)
	user, err := os.Open(s.UserNS)
	must(t, err)
	defer func() { _ = user.Close() }()
	var want unix.Stat_t
	must(t, unix.Fstat(int(user.Fd()), &want))
	for _, ns := range []string{s.NetNS, s.IPCNS, s.UTSNS} {
		if got := ownerOf(t, ns); got != want.Ino {
			t.Errorf("%s is of user namespace %d, not of %d", ns, got, want.Ino)
		}
	}
	inside(t, s, func() error {
		name, err := os.Hostname()
		max, errMax := os.ReadFile("/proc/sys/kernel/shmmax")
		port, errPort := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
		if name != "mapped" || strings.TrimSpace(string(max)) != "123456" || strings.TrimSpace(string(port)) != "0" {
			t.Errorf("name %q, shmmax %q, port %q", name, max, port)
		}
		return errors.Join(err, errMax, errPort)
	})
	r := &pod.Record{ID: id, Config: c, Sandbox: s, State: pod.Running}
	must(t, d.WriteFiles(t.Context(), r))
	for name, owner := range map[string][3]uint32{
		s.Shm: {50000, 60000, 0o1777}, filepath.Join(s.FilesDir(), pod.FileHosts): {50000, 60000, 0o644},
		s.Dir: {0, 60000, 0o710}, filepath.Dir(s.Dir): {0, 0, 0o711}, filepath.Dir(s.UserNS): {0, 0, 0o700},
	} {
		var st unix.Stat_t
		must(t, unix.Stat(name, &st))
		if got := [3]uint32{st.Uid, st.Gid, st.Mode & 0o7777}; got != owner {
			t.Errorf("%s: owner and mode %o, want %o", name, got, owner)
		}
	}
	before := inode(t, s.UserNS)
	_, err = d.Create(t.Context(), id, &c)
	must(t, err)
	if inode(t, s.UserNS) != before {
		t.Error("a second call has made another user namespace")
	}
	if seen := d.Observe(t.Context(), r); !seen.Alive {
		t.Errorf("observed %+v", seen)
	}
	must(t, unmount(s.UserNS))
	if seen := d.Observe(t.Context(), r); seen.Err == nil || !strings.Contains(seen.Err.Error(), "/user") {
		t.Errorf("without it, observed %+v", seen)
	}
}

// ownerOf is the inode of the user namespace that owns a namespace.
func ownerOf(t *testing.T, ns string) uint64 {
	t.Helper()
	f, err := os.Open(ns)
	must(t, err)
	defer func() { _ = f.Close() }()
	fd, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_USERNS)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	return st.Ino
}

// What an audit puts back of a pod with a user namespace is as it was.
func TestRestoreOfUserNamespace(t *testing.T) {
	d := driver(t, Config{Waiter: waiter})
	c := withUser(pod.Namespaces{})
	id, s := create(t, d, &c)
	r := &pod.Record{ID: id, Config: c, Sandbox: s, State: pod.Running}
	must(t, unmount(s.Shm))
	must(t, os.Chmod(s.Dir, 0o700))
	var fixed []string
	for _, h := range d.Wants(r) {
		if h.Kind == pod.KindMount || h.Kind == pod.KindFolder {
			must(t, d.Restore(context.Background(), r, h))
			fixed = append(fixed, h.Name)
		}
	}
	var shm, dir unix.Stat_t
	must(t, errors.Join(unix.Stat(s.Shm, &shm), unix.Stat(s.Dir, &dir)))
	if len(fixed) != 3 || shm.Uid != 50000 || shm.Gid != 60000 || dir.Mode&0o777 != 0o710 {
		t.Errorf("put back %v; shm of %d:%d, folder with mode %o", fixed, shm.Uid, shm.Gid, dir.Mode&0o777)
	}
}
