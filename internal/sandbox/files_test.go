package sandbox

import (
	"errors"
	"math"
	"os"
	"path/filepath"
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
		for _, path := range []string{s.Shm, filepath.Join(s.Dir, pod.FileHosts), filepath.Join(s.Dir, pod.FileHostname), filepath.Join(s.Dir, pod.FileResolvConf)} {
			b := make([]byte, 100)
			n, err := unix.Lgetxattr(path, "security.selinux", b)
			if got := string(b[:max(n, 0)]); got != label || err != nil && !errors.Is(err, unix.ENODATA) {
				t.Errorf("%s has the label %q (%v), want %q", path, got, err, label)
			}
		}
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
		"relative folder": {StateDir: "run"}, "no folder": {},
		"negative shm": {StateDir: "/x", ShmSize: -1}, "node's sysctl": {StateDir: "/x", Sysctls: map[string]string{"vm.x": "1"}},
	} {
		if _, err := New(c); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCgroupNames(t *testing.T) {
	d, err := New(Config{StateDir: "/x", SystemdCgroups: true})
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
