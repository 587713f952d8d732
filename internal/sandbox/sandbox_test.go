package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// driver is one with a state folder of its own. At the end of the test nothing
// may be left of it: no mount, no cgroup.
func driver(t *testing.T, cfg Config) *Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make namespaces and mounts")
	}
	cfg.StateDir, cfg.RootDir = t.TempDir(), t.TempDir()
	d, err := New(cfg)
	must(t, err)
	t.Cleanup(func() {
		if left := mountsBelow(t, cfg.StateDir); len(left) > 0 {
			t.Errorf("left mounted: %v", left)
			for _, m := range left {
				_ = unix.Unmount(m, unix.MNT_DETACH)
			}
		}
	})
	return d
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], dir+"/") {
			out = append(out, f[4])
		}
	}
	return out
}

// create makes a sandbox and removes it at the end of the test.
func create(t *testing.T, d *Driver, c *pod.Config) (pod.ID, pod.Sandbox) {
	t.Helper()
	id := pod.NewID()
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), id); err != nil {
			t.Errorf("remove at the end: %v", err)
		}
	})
	s, err := d.Create(t.Context(), id, c)
	must(t, err)
	return id, s
}

// inside runs f in the namespaces of a sandbox.
func inside(t *testing.T, s pod.Sandbox, f func() error) {
	t.Helper()
	must(t, onLentThread(func() error {
		for _, ns := range []string{s.NetNS, s.IPCNS, s.UTSNS} {
			fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			err = unix.Setns(fd, 0)
			_ = unix.Close(fd)
			if err != nil {
				return err
			}
		}
		return f()
	}))
}

func readSysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

func TestASandboxFromInside(t *testing.T) {
	d := driver(t, Config{Sysctls: UnprivilegedSysctls()})
	_, s := create(t, d, &pod.Config{
		Hostname: "web-0",
		Sysctls: map[string]string{
			"kernel.shm_rmid_forced": "1", "net.ipv4.ip_forward": "1", "kernel.msgmax": "12345",
			"net/ipv4/ip_default_ttl": "77", "kernel.sem": "100 32000 200 128", "fs.mqueue.msg_max": "42",
			"net.ipv4.ping_group_range": "5 6",
		},
	})
	inside(t, s, func() error {
		var uts unix.Utsname
		if err := unix.Uname(&uts); err != nil {
			return err
		}
		if got := unix.ByteSliceToString(uts.Nodename[:]); got != "web-0" {
			t.Errorf("host name %q", got)
		}
		for name, want := range map[string]string{
			"kernel/shm_rmid_forced": "1", "net/ipv4/ip_forward": "1", "kernel/msgmax": "12345",
			"net/ipv4/ip_default_ttl": "77", "kernel/sem": "100 32000 200 128", "fs/mqueue/msg_max": "42",
			"net/ipv4/ip_unprivileged_port_start": "0",   // a default
			"net/ipv4/ping_group_range":           "5 6", // the pod's over a default
		} {
			if got := readSysctl(name); got != want {
				t.Errorf("%s is %q inside, want %q", name, got, want)
			}
		}
		return nil
	})
	if got := readSysctl("kernel/msgmax"); got == "12345" {
		t.Error("a pod's sysctl changed the node")
	}
	if h, err := os.Hostname(); err != nil || h == "web-0" {
		t.Errorf("the node's name is %q, %v", h, err)
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(s.Shm, &st))
	if st.Type != unix.TMPFS_MAGIC || st.Blocks*uint64(st.Bsize) != defaultShmSize || st.Flags&unix.ST_NOEXEC == 0 {
		t.Errorf("/dev/shm is %x with %d bytes, flags %x", st.Type, st.Blocks*uint64(st.Bsize), st.Flags)
	}
	info, err := os.Stat(s.Shm)
	must(t, err)
	if info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("/dev/shm has mode %s", info.Mode())
	}
	if info, err = os.Stat(s.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the pod's folder: %v, %v", info, err)
	}
}

// The process that makes sandboxes stays where it was, and so does each of its
// threads that is still there.
func TestMakingSandboxesLeavesTheProcessAlone(t *testing.T) {
	d := driver(t, Config{})
	before := threadNamespaces(t, "self")
	var wg sync.WaitGroup
	for range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := pod.NewID()
			_, err := d.Create(t.Context(), id, &pod.Config{Hostname: "h"})
			if err == nil {
				err = d.Remove(t.Context(), id)
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if got := threadNamespaces(t, fmt.Sprint(os.Getpid())); got != before {
		t.Errorf("the first thread is in %s, was in %s", got, before)
	}
}

func threadNamespaces(t *testing.T, pid string) string {
	t.Helper()
	var out []string
	for _, k := range kinds {
		link, err := os.Readlink(filepath.Join("/proc", pid, "ns", k.name))
		must(t, err)
		out = append(out, link)
	}
	return strings.Join(out, " ")
}

func TestModes(t *testing.T) {
	d := driver(t, Config{Sysctls: UnprivilegedSysctls()})
	for name, tc := range map[string]struct {
		n    pod.Namespaces
		want string // which are the pod's own
	}{
		"all of its own":  {pod.Namespaces{}, "net ipc uts shm"},
		"node's network":  {pod.Namespaces{Network: pod.NamespaceNode}, "ipc shm"},
		"node's ipc":      {pod.Namespaces{IPC: pod.NamespaceNode}, "net uts"},
		"everything node": {pod.Namespaces{Network: pod.NamespaceNode, IPC: pod.NamespaceNode, PID: pod.NamespaceNode}, ""},
		"private ipc":     {pod.Namespaces{IPC: pod.NamespaceContainer}, "net uts"},
	} {
		t.Run(name, func(t *testing.T) {
			id, s := create(t, d, &pod.Config{Hostname: "p", Security: pod.Security{Namespaces: tc.n}})
			var got []string
			for _, f := range []struct{ name, value string }{{"net", s.NetNS}, {"ipc", s.IPCNS}, {"uts", s.UTSNS}, {"shm", s.Shm}} {
				if f.value != "" {
					got = append(got, f.name)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("has %v of its own, want %s", got, tc.want)
			}
			r := &pod.Record{ID: id, Sandbox: s}
			if seen := d.Observe(t.Context(), r); seen.Err != nil || !seen.Alive {
				t.Errorf("observed %+v", seen)
			}
			must(t, d.Remove(t.Context(), id))
			if seen := d.Observe(t.Context(), r); !errors.Is(seen.Err, errdefs.ErrNotFound) || seen.Alive {
				t.Errorf("observed %+v after removal", seen)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	d := driver(t, Config{})
	node := pod.Security{Namespaces: pod.Namespaces{Network: pod.NamespaceNode, IPC: pod.NamespaceNode}}
	for name, tc := range map[string]struct {
		c    pod.Config
		kind error
		says string
	}{
		"node's sysctl":       {pod.Config{Sysctls: map[string]string{"vm.swappiness": "1"}}, errdefs.ErrInvalidArgument, "vm.swappiness"},
		"net on host net":     {pod.Config{Security: node, Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}}, errdefs.ErrInvalidArgument, "whose network namespace"},
		"ipc on host ipc":     {pod.Config{Security: node, Sysctls: map[string]string{"kernel.shmmax": "1"}}, errdefs.ErrInvalidArgument, "whose IPC namespace"},
		"sysctl that escapes": {pod.Config{Sysctls: map[string]string{"net/../vm/swappiness": "1"}}, errdefs.ErrInvalidArgument, "no name"},
		"sysctl dots":         {pod.Config{Sysctls: map[string]string{"net....vm": "1"}}, errdefs.ErrInvalidArgument, "no name"},
		"unknown sysctl":      {pod.Config{Sysctls: map[string]string{"net.ipv4.no_such": "1"}}, errdefs.ErrInvalidArgument, "no such parameter"},
		"bad value":           {pod.Config{Sysctls: map[string]string{"net.ipv4.ip_forward": "many"}}, errdefs.ErrInvalidArgument, `"many"`},
		"kernel.sem is whole": {pod.Config{Sysctls: map[string]string{"kernel.sem_next_id": "1"}}, errdefs.ErrInvalidArgument, "whole node"},
		"hostname":            {pod.Config{Hostname: "a\nb"}, errdefs.ErrInvalidArgument, "hostname"},
		"long hostname":       {pod.Config{Hostname: strings.Repeat("x", 65)}, errdefs.ErrInvalidArgument, "64"},
		"unmapped":            {withUser(pod.Namespaces{User: &pod.UserNamespace{}}), errdefs.ErrInvalidArgument, "userns_options.uids has 0 mappings"},
		"user and host IPC":   {withUser(pod.Namespaces{IPC: pod.NamespaceNode}), errdefs.ErrInvalidArgument, "ipc is NODE"},
		"user and host PIDs":  {withUser(pod.Namespaces{PID: pod.NamespaceNode}), errdefs.ErrInvalidArgument, "pid is NODE"},
		"slice":               {pod.Config{CgroupParent: "/kubepods.slice/kubepods-pod1.slice"}, errdefs.ErrInvalidArgument, "cgroup_parent"},
		"cgroup elsewhere":    {pod.Config{CgroupParent: "/a/../../b"}, errdefs.ErrInvalidArgument, "leads elsewhere"},
		"network mode":        {pod.Config{Security: pod.Security{Namespaces: pod.Namespaces{Network: pod.NamespaceContainer}}}, errdefs.ErrInvalidArgument, "network"},
	} {
		t.Run(name, func(t *testing.T) {
			id := pod.NewID()
			_, err := d.Create(t.Context(), id, &tc.c)
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v with %q", err, tc.kind, tc.says)
			}
			if _, err := os.Lstat(filepath.Join(d.cfg.StateDir, "pods", string(id))); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left its folder: %v", err)
			}
		})
	}
	for _, id := range []pod.ID{"", "..", "a/b", "."} {
		if _, err := d.Create(t.Context(), id, &pod.Config{}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("id %q: %v", id, err)
		}
		if err := d.Remove(t.Context(), id); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("remove id %q: %v", id, err)
		}
	}
}

func inode(t *testing.T, p string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(p, &st))
	return st.Ino
}

func TestCreateIsIdempotent(t *testing.T) {
	d := driver(t, Config{})
	c := &pod.Config{Hostname: "one"}
	id, s := create(t, d, c)
	must(t, os.WriteFile(filepath.Join(s.Shm, "kept"), nil, 0o600))
	net, mounts := inode(t, s.NetNS), len(mountsBelow(t, s.Dir))
	again, err := d.Create(t.Context(), id, c)
	must(t, err)
	if again.NetNS != s.NetNS || inode(t, again.NetNS) != net {
		t.Error("a second call made another network namespace")
	}
	if _, err := os.Stat(filepath.Join(s.Shm, "kept")); err != nil {
		t.Errorf("a second call lost what was in /dev/shm: %v", err)
	}
	if n := len(mountsBelow(t, s.Dir)); n != mounts || n != 4 {
		t.Errorf("%d mounts, then %d", mounts, n)
	}
}

// A crash may come between any two steps: some of the pins are missing, or
// there twice, or /dev/shm is, and then somebody creates or removes.
func TestLeftoversOfACrash(t *testing.T) {
	d := driver(t, Config{})
	c := &pod.Config{Hostname: "crashed", Sysctls: map[string]string{"kernel.msgmax": "4321"}}
	for name, spoil := range map[string]func(t *testing.T, s pod.Sandbox){
		"a pin is missing":    func(t *testing.T, s pod.Sandbox) { must(t, unmount(s.NetNS)) },
		"only files are left": func(t *testing.T, s pod.Sandbox) { must(t, unmountAll(s.Dir)) },
		"a file is missing": func(t *testing.T, s pod.Sandbox) {
			must(t, unmount(s.UTSNS))
			must(t, os.Remove(s.UTSNS))
		},
		"pinned twice": func(t *testing.T, s pod.Sandbox) {
			must(t, unix.Mount(s.NetNS, s.NetNS, "", unix.MS_BIND, ""))
			must(t, unmount(s.UTSNS))
		},
		"shm is missing": func(t *testing.T, s pod.Sandbox) { must(t, unmount(s.Shm)) },
		"folder is missing": func(t *testing.T, s pod.Sandbox) {
			must(t, unmountAll(s.Dir))
			must(t, os.RemoveAll(s.Dir))
		},
		"cgroup is missing": func(t *testing.T, s pod.Sandbox) {
			must(t, d.removeCgroup(t.Context(), pod.ID(filepath.Base(s.Dir))))
		},
	} {
		t.Run(name+", created", func(t *testing.T) {
			id, s := create(t, d, c)
			spoil(t, s)
			s, err := d.Create(t.Context(), id, c)
			must(t, err)
			if seen := d.Observe(t.Context(), &pod.Record{ID: id, Sandbox: s}); !seen.Alive {
				t.Errorf("observed %+v", seen)
			}
			inside(t, s, func() error {
				if got := readSysctl("kernel/msgmax"); got != "4321" {
					t.Errorf("msgmax is %s", got)
				}
				return nil
			})
			if n := len(mountsBelow(t, s.Dir)); n != 4 {
				t.Errorf("%d mounts", n)
			}
		})
		t.Run(name+", removed", func(t *testing.T) {
			id, s := create(t, d, c)
			spoil(t, s)
			must(t, d.Remove(t.Context(), id))
			if _, err := os.Lstat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its folder: %v", err)
			}
		})
	}
}

func TestStopAndRemoveDoNotMindWhatIsGone(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	must(t, d.WriteFiles(t.Context(), &pod.Record{ID: id, Sandbox: s}))
	for range 2 {
		must(t, d.Stop(t.Context(), id))
		if left := mountsBelow(t, s.Dir); len(left) != 0 {
			t.Errorf("still mounted: %v", left)
		}
	}
	if _, err := os.Stat(filepath.Join(s.FilesDir(), pod.FileHosts)); err != nil {
		t.Errorf("stopping took the files: %v", err)
	}
	if seen := d.Observe(t.Context(), &pod.Record{ID: id, Sandbox: s}); seen.Alive || !errors.Is(seen.Err, errdefs.ErrNotFound) {
		t.Errorf("observed %+v", seen)
	}
	for range 2 {
		must(t, d.Remove(t.Context(), id))
	}
	must(t, d.Stop(t.Context(), id))
}

func TestStopWhileNamespacesAreInUse(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	f, err := os.Create(filepath.Join(s.Shm, "open"))
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, d.Stop(t.Context(), id))
	must(t, d.Remove(t.Context(), id))
	if _, err := f.WriteString("x"); err != nil {
		t.Errorf("an open file of /dev/shm: %v", err)
	}
}

// A limit below what is in use is no fault of ours, nor of the request's form.
// What the pod has in use here is the kernel's memory for a process.
func TestLimitBelowWhatIsInUse(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	procs := filepath.Join("/sys/fs/cgroup/memory", s.Cgroup, "cgroup.procs")
	if _, err := os.Stat(procs); err != nil {
		t.Skip("needs the memory controller of cgroup v1; v2 takes any limit")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ >"$0" && echo in && exec cat`, procs)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { must(t, errors.Join(in.Close(), cmd.Wait())) }()
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatalf("the process in the cgroup: %v", err)
	}
	r := &pod.Record{ID: id}
	if err := d.Resize(t.Context(), r, &pod.Config{Resources: &pod.Resources{MemoryLimit: 1}}); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("a limit of one byte: %v", err)
	}
	must(t, d.Resize(t.Context(), r, &pod.Config{Resources: &pod.Resources{MemoryLimit: 64 << 20}}))
}

func TestCgroups(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{
		Resources: &pod.Resources{CPUShares: 100, CPUQuota: 50_000, CPUPeriod: 100_000, MemoryLimit: 64 << 20},
		Overhead:  &pod.Resources{CPUShares: 20, MemoryLimit: 16 << 20},
	})
	if want := "/fairlead/pod" + string(id); s.Cgroup != want {
		t.Fatalf("cgroup %s, want %s", s.Cgroup, want)
	}
	own, _ := d.ownCgroup(id)
	own.Resources = together(nil, nil)
	m, err := manager.New(own)
	must(t, err)
	paths := m.GetPaths()
	// It is there also where we set nothing: a runtime makes only what is below.
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	if cgroups.IsCgroup2HybridMode() {
		paths["unified"] = filepath.Join("/sys/fs/cgroup/unified", s.Cgroup)
	}
	// What runtimes make below, also where we set nothing, goes too.
	for _, p := range paths {
		must(t, os.MkdirAll(filepath.Join(p, "container"), 0o755))
	}
	if v1 := paths["memory"]; v1 != "" {
		if b, err := os.ReadFile(filepath.Join(v1, "memory.limit_in_bytes")); err != nil || strings.TrimSpace(string(b)) != "83886080" {
			t.Errorf("memory limit %s, %v", b, err)
		}
		if b, err := os.ReadFile(filepath.Join(paths["cpu"], "cpu.shares")); err != nil || strings.TrimSpace(string(b)) != "120" {
			t.Errorf("cpu shares %s, %v", b, err)
		}
	}
	// Limits change, and go.
	now := func(name, v1, v2 string) string {
		path := filepath.Join(paths[name], v1)
		if paths[name] == "" {
			path = filepath.Join(paths[""], v2)
		}
		b, err := os.ReadFile(path)
		must(t, err)
		return strings.TrimSpace(string(b))
	}
	r := &pod.Record{ID: id, Config: pod.Config{Resources: &pod.Resources{MemoryLimit: 64 << 20, CPUShares: 100}}}
	must(t, d.Resize(t.Context(), r, &pod.Config{Resources: &pod.Resources{MemoryLimit: 32 << 20}}))
	if got := now("memory", "memory.limit_in_bytes", "memory.max"); got != "33554432" {
		t.Errorf("memory limit %s", got)
	}
	if got := now("cpu", "cpu.shares", "cpu.weight"); got != "1024" && got != "100" && got != "39" {
		t.Errorf("cpu shares %s", got)
	}
	r.Config.Resources = &pod.Resources{MemoryLimit: 32 << 20}
	must(t, d.Resize(t.Context(), r, &pod.Config{}))
	if got := now("memory", "memory.limit_in_bytes", "memory.max"); got == "33554432" {
		t.Errorf("memory limit %s, and there is none any more", got)
	}
	r.Config.CgroupParent = "/theirs"
	must(t, d.Resize(t.Context(), r, &pod.Config{Resources: &pod.Resources{MemoryLimit: 1 << 20}}))
	must(t, d.Remove(t.Context(), id))
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", p, err)
		}
	}
	// Other tests make and remove pods there too, so it is looked at until it is
	// gone or theirs.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		above, _ := filepath.Glob("/sys/fs/cgroup/*/fairlead")
		theirs, _ := filepath.Glob("/sys/fs/cgroup/*/fairlead/pod*")
		if len(above) == 0 || len(theirs) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("the cgroup above is left: %v", above)
			break
		}
	}
	// A cgroup of the caller is neither made nor removed.
	_, s = create(t, d, &pod.Config{CgroupParent: "/kubepods/pod1"})
	if s.Cgroup != "/kubepods/pod1" {
		t.Errorf("cgroup %s", s.Cgroup)
	}
}

func TestWriteFiles(t *testing.T) {
	d := driver(t, Config{})
	c := pod.Config{
		Hostname: "web-0",
		DNS:      &pod.DNS{Servers: []string{"10.0.0.10", "fe80::1%eth0"}, Searches: []string{"a.b", "c"}, Options: []string{"ndots:5"}},
		Sysctls:  map[string]string{"net/ipv4/conf/lo/forwarding": "0", "net.ipv4.neigh.lo.retrans_time_ms": "1500"},
	}
	id, s := create(t, d, &c)
	s.IPs = []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}
	r := &pod.Record{ID: id, Config: c, Sandbox: s}
	must(t, d.WriteFiles(t.Context(), r))
	for name, want := range map[string]string{
		pod.FileResolvConf: "nameserver 10.0.0.10\nnameserver fe80::1%eth0\nsearch a.b c\noptions ndots:5\n",
		pod.FileHosts:      localHosts + "10.1.2.3\tweb-0\nfd00::3\tweb-0\n",
		pod.FileHostname:   "web-0\n",
	} {
		b, err := os.ReadFile(filepath.Join(s.FilesDir(), name))
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if info, err := os.Stat(filepath.Join(s.FilesDir(), name)); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: %v", name, info.Mode())
		}
	}
	inside(t, s, func() error {
		if got := readSysctl("net/ipv4/neigh/lo/retrans_time_ms"); got != "1500" {
			t.Errorf("the interface's sysctl is %s", got)
		}
		return nil
	})
	// Containers hold the file, not its name.
	before := inode(t, filepath.Join(s.FilesDir(), pod.FileHosts))
	must(t, d.WriteFiles(t.Context(), r))
	if inode(t, filepath.Join(s.FilesDir(), pod.FileHosts)) != before {
		t.Error("writing the same again replaced the file")
	}
	r.Config.Sysctls = map[string]string{"net.ipv4.conf.eth9.forwarding": "1"}
	if err := d.WriteFiles(t.Context(), r); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "eth9") {
		t.Errorf("a sysctl of an interface that never came: %v", err)
	}
}

func TestFilesOnTheNodesNetwork(t *testing.T) {
	d := driver(t, Config{})
	c := pod.Config{Hostname: "ignored", Security: pod.Security{Namespaces: pod.Namespaces{Network: pod.NamespaceNode}}}
	id, s := create(t, d, &c)
	must(t, d.WriteFiles(t.Context(), &pod.Record{ID: id, Config: c, Sandbox: s}))
	node, err := os.Hostname()
	must(t, err)
	if b, err := os.ReadFile(filepath.Join(s.FilesDir(), pod.FileHostname)); err != nil || string(b) != node+"\n" {
		t.Errorf("hostname %q, %v; the node is %s", b, err, node)
	}
	if want, err := os.ReadFile("/etc/hosts"); err == nil {
		if b, err := os.ReadFile(filepath.Join(s.FilesDir(), pod.FileHosts)); err != nil || string(b) != string(want) {
			t.Errorf("hosts %q, %v", b, err)
		}
	}
}
