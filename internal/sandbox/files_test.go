package sandbox

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestResolvConf(t *testing.T) {
	node := []byte("nameserver 1.2.3.4\n")
	for name, tc := range map[string]struct {
		dns  *pod.DNS
		want string
	}{
		"the node's":       {nil, string(node)},
		"says nothing":     {&pod.DNS{}, string(node)},
		"only searches":    {&pod.DNS{Searches: []string{"x"}}, "search x\n"},
		"not an address":   {&pod.DNS{Servers: []string{"dns.example"}}, ""},
		"a line in it":     {&pod.DNS{Searches: []string{"x\nnameserver 6.6.6.6"}}, ""},
		"a line in a zone": {&pod.DNS{Servers: []string{"fe80::1%a\nnameserver"}}, ""},
		"an empty word":    {&pod.DNS{Options: []string{""}}, ""},
	} {
		got, err := resolvConf(tc.dns, node)
		if string(got) != tc.want || (tc.want == "") != errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestNodeResolver(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		must(t, os.WriteFile(p, []byte(content), 0o600))
		return p
	}
	stub := file("stub", "nameserver 127.0.0.53\noptions edns0\n")
	server := file("real", "nameserver 192.0.2.1\n")
	v6 := file("v6", "nameserver ::1\n")
	missing := filepath.Join(dir, "missing")
	for name, tc := range map[string]struct {
		host  bool
		files []string
		want  string
	}{
		"plain":                   {false, []string{server, stub}, "192.0.2.1"},
		"behind the stub":         {false, []string{stub, server}, "192.0.2.1"},
		"stub on the host's net":  {true, []string{stub, server}, "127.0.0.53"},
		"nothing behind":          {false, []string{stub, missing}, "127.0.0.53"},
		"nothing better behind":   {false, []string{stub, v6}, "127.0.0.53"},
		"loopback of IPv6":        {false, []string{v6, server}, "192.0.2.1"},
		"the node has no file":    {false, []string{missing, server}, ""},
		"and on the host's, none": {true, []string{missing, server}, ""},
	} {
		got, err := nodeResolver(tc.host, tc.files...)
		if err != nil || !strings.Contains(string(got), tc.want) || (tc.want == "") != (len(got) == 0) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestHostsOfANodeWithoutAny(t *testing.T) {
	if b, err := hostsOfNode(filepath.Join(t.TempDir(), "none")); err != nil || string(b) != localHosts {
		t.Errorf("%q, %v", b, err)
	}
}

func TestSysctlNames(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.ip_forward":             "net/ipv4/ip_forward",
		"net/ipv4/ip_forward":             "net/ipv4/ip_forward",
		"net/ipv4/conf/eth0.1/forwarding": "net/ipv4/conf/eth0.1/forwarding",
		"net.ipv4.conf.eth0/1.forwarding": "net/ipv4/conf/eth0.1/forwarding",
	} {
		if got := sysctlPath(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"net.ipv4.conf.eth0.forwarding": true, "net.ipv4.conf.all.forwarding": false,
		"net.ipv4.conf.default.forwarding": false, "net.ipv4.ip_forward": false, "net.ipv6.neigh.eth0.retrans_time_ms": true,
	} {
		if got := (sysctl{name: name}).waits(); got != want {
			t.Errorf("%s waits: %t", name, got)
		}
	}
}

// The files and /dev/shm have the pod's label, and none where it has none. A
// kernel without SELinux keeps any text.
func TestWriteFilesLabels(t *testing.T) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		t.Skip("needs a kernel without SELinux")
	}
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	r := &pod.Record{ID: id, Sandbox: s}
	for _, label := range []string{"", "u:r:t:s0:c1,c2"} {
		r.Labels.Mount = label
		must(t, d.WriteFiles(t.Context(), r))
		for _, path := range []string{s.Shm, filepath.Join(s.FilesDir(), pod.FileHosts), filepath.Join(s.FilesDir(), pod.FileHostname), filepath.Join(s.FilesDir(), pod.FileResolvConf)} {
			b := make([]byte, 100)
			n, err := unix.Lgetxattr(path, "security.selinux", b)
			if got := string(b[:max(n, 0)]); got != label || err != nil && !errors.Is(err, unix.ENODATA) {
				t.Errorf("%s has the label %q (%v), want %q", path, got, err, label)
			}
		}
	}
}

// What containers can write into is not in the state folder, which is in memory.
func TestFilesAreOnDisk(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	must(t, d.WriteFiles(t.Context(), &pod.Record{ID: id, Sandbox: s}))
	if s.FilesDir() != filepath.Join(d.cfg.RootDir, "pods", string(id)) {
		t.Errorf("the files are in %s", s.FilesDir())
	}
	if names := namesIn(t, s.Dir); !slices.Equal(names, []string{nsFolder, shmFolder}) {
		t.Errorf("the state folder has %v", names)
	}
	if names := namesIn(t, s.FilesDir()); !slices.Equal(names, []string{pod.FileHostname, pod.FileHosts, pod.FileResolvConf}) {
		t.Errorf("the root folder has %v", names)
	}
	for _, dir := range []string{s.FilesDir(), filepath.Dir(s.FilesDir())} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	must(t, d.Remove(t.Context(), id))
	if names := namesIn(t, filepath.Join(d.cfg.RootDir, "pods")); len(names) > 0 {
		t.Errorf("removing the pod left %v", names)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A pod of a build that kept the files in the state folder has them there until
// its end.
func TestFilesOfAnEarlierBuild(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	s.Files = ""
	r := &pod.Record{ID: id, Sandbox: s, State: pod.Running}
	must(t, d.WriteFiles(t.Context(), r))
	hosts := filepath.Join(s.Dir, pod.FileHosts)
	if _, err := os.Stat(hosts); err != nil {
		t.Error(err)
	}
	faults := func() (out []string) {
		held, err := d.Held(t.Context(), []*pod.Record{r})
		must(t, err)
		for _, h := range held {
			if h.Fault != "" {
				out = append(out, h.Name)
			}
		}
		return out
	}
	if got := faults(); len(got) > 0 {
		t.Errorf("faulty: %v", got)
	}
	must(t, os.Remove(hosts))
	if got := faults(); !slices.Equal(got, []string{s.Dir}) {
		t.Errorf("without a file, faulty: %v", got)
	}
	must(t, d.Restore(t.Context(), r, pod.Held{Kind: pod.KindFolder, Name: s.Dir, Owner: string(id)}))
	if got := faults(); len(got) > 0 {
		t.Errorf("put back, faulty: %v", got)
	}
	if names := namesIn(t, d.cfg.RootDir); len(names) > 0 {
		t.Errorf("the root folder has %v", names)
	}
	must(t, d.Remove(t.Context(), id))
	if _, err := os.Stat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing the pod left its folder: %v", err)
	}
}

// Files outlive the boot, and the records do not.
func TestFilesOfAnEarlierBoot(t *testing.T) {
	d := driver(t, Config{})
	live, s := create(t, d, &pod.Config{})
	must(t, d.WriteFiles(t.Context(), &pod.Record{ID: live, Sandbox: s}))
	if left, err := d.Leftovers(func(pod.ID) bool { return false }); err != nil || !slices.Equal(left, []pod.ID{live}) {
		t.Errorf("%v, %v", left, err)
	}
	must(t, os.Mkdir(d.files("gone"), 0o700))
	left, err := d.Leftovers(func(id pod.ID) bool { return id == live })
	if err != nil || !slices.Equal(left, []pod.ID{"gone"}) {
		t.Errorf("%v, %v", left, err)
	}
	must(t, d.Remove(t.Context(), left[0]))
	if left, err = d.Leftovers(func(pod.ID) bool { return false }); err != nil || !slices.Equal(left, []pod.ID{live}) {
		t.Errorf("%v, %v", left, err)
	}
	none, err := New(Config{StateDir: "/x", RootDir: t.TempDir()})
	must(t, err)
	if left, err := none.Leftovers(nil); err != nil || len(left) > 0 {
		t.Errorf("where no pod ever was: %v, %v", left, err)
	}
}

func FuzzSysctlNames(f *testing.F) {
	for _, s := range []string{"net.ipv4.x", "net/../vm", "kernel.shmmax", "kernel/../../etc/passwd", "..", "net.", "/net/a", "net//a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if _, err := scopeOf(name); err != nil {
			return
		}
		p := filepath.Join("/proc/sys", sysctlPath(name))
		if p != "/proc/sys/"+sysctlPath(name) || !strings.HasPrefix(p, "/proc/sys/net/") && !strings.HasPrefix(p, "/proc/sys/kernel/") && !strings.HasPrefix(p, "/proc/sys/fs/mqueue/") {
			t.Errorf("%q is allowed and leads to %s", name, p)
		}
	})
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"relative folder": {StateDir: "run", RootDir: "/y"}, "no folder": {RootDir: "/y"}, "no root": {StateDir: "/x"}, "relative root": {StateDir: "/x", RootDir: "y"},
		"negative shm": {StateDir: "/x", RootDir: "/y", ShmSize: -1}, "node's sysctl": {StateDir: "/x", RootDir: "/y", Sysctls: map[string]string{"vm.x": "1"}},
	} {
		if _, err := New(c); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCgroupNames(t *testing.T) {
	d, err := New(Config{StateDir: "/x", RootDir: "/y", SystemdCgroups: true})
	must(t, err)
	c, name := d.ownCgroup("abc")
	if name != "fairlead-podabc.slice" || c.Name != name || c.Parent != "fairlead.slice" || !c.Systemd {
		t.Errorf("%s, %+v", name, c)
	}
	if err := checkParent("kubepods-pod1.slice", true); err != nil {
		t.Error(err)
	}
	if err := checkParent("/kubepods/pod1", true); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	got := together(&pod.Resources{CPUQuota: 50_000}, &pod.Resources{CPUQuota: 10_000, CPUPeriod: 50_000, MemoryLimit: 5, CPUShares: 9})
	if got.CpuQuota != 70_000 || got.CpuPeriod != 100_000 || got.Memory != 0 || got.CpuShares != 0 {
		t.Errorf("quota %d of %d, memory %d, shares %d", got.CpuQuota, got.CpuPeriod, got.Memory, got.CpuShares)
	}
	if got := together(nil, &pod.Resources{MemoryLimit: 5}); got.Memory != 0 {
		t.Errorf("overhead alone limits to %d", got.Memory)
	}
	// What is too much for the kernel, or for a number, stays the most that there is.
	got = together(&pod.Resources{CPUQuota: 1<<44 - 1, CPUPeriod: 1_000_000, MemoryLimit: math.MaxInt64, MemorySwapLimit: math.MaxInt64},
		&pod.Resources{CPUQuota: 1<<44 - 1, CPUPeriod: 1000, MemoryLimit: math.MaxInt64})
	if got.CpuQuota != 1<<44-1 || got.Memory != math.MaxInt64 || got.MemorySwap != math.MaxInt64 {
		t.Errorf("quota %d, memory %d, swap %d", got.CpuQuota, got.Memory, got.MemorySwap)
	}
	got = together(&pod.Resources{MemoryLimit: 10, MemorySwapLimit: 15}, &pod.Resources{MemoryLimit: 5})
	if got.Memory != 15 || got.MemorySwap != 20 {
		t.Errorf("memory %d, swap %d", got.Memory, got.MemorySwap)
	}
	if got := together(&pod.Resources{MemoryLimit: 10, MemorySwapLimit: -1}, nil); got.MemorySwap != -1 {
		t.Errorf("swap %d, and no limit was asked for", got.MemorySwap)
	}
}

// What a file of cgroup v2 has by default it gets back, and what is not known is
// not guessed.
func TestRestoreFiles(t *testing.T) {
	want := &cgroups.Resources{Unified: map[string]string{"memory.low": "7"}}
	must(t, restoreFiles(map[string]string{"memory.high": "5", "memory.low": "6"}, want))
	if want.Unified["memory.high"] != "max" || want.Unified["memory.low"] != "7" {
		t.Errorf("%v", want.Unified)
	}
	if err := restoreFiles(map[string]string{"io.max": "8:0 rbps=1"}, want); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), `resources.unified["io.max"]`) {
		t.Errorf("io.max: %v", err)
	}
}
