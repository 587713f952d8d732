package cri

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func secure(f func(*runtimeapi.LinuxContainerSecurityContext)) func(*containerConfig) {
	return func(c *containerConfig) { f(c.Linux.SecurityContext) }
}

// effective is the CapEff line of the container's first process.
func effective(t *testing.T, n *node.Node, h string, change func(*containerConfig), pod ...func(*runtimeapi.PodSandboxConfig)) uint64 {
	t.Helper()
	out := n.Inside(h, "grep CapEff /proc/self/status | cut -f2", change, pod...)
	v, err := strconv.ParseUint(strings.TrimSpace(out), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCapabilities(t *testing.T) {
	has := func(set uint64, c int) bool { return set>>c&1 == 1 }
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		usual := effective(t, n, h, nil)
		if !has(usual, unix.CAP_CHOWN) || has(usual, unix.CAP_SYS_ADMIN) {
			t.Errorf("default set %x", usual)
		}
		changed := effective(t, n, h, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN", "cap_net_admin"}, DropCapabilities: []string{"CHOWN"}}
		}))
		if has(changed, unix.CAP_CHOWN) || !has(changed, unix.CAP_SYS_ADMIN) || !has(changed, unix.CAP_NET_ADMIN) || !has(changed, unix.CAP_KILL) {
			t.Errorf("changed set %x", changed)
		}
		none := effective(t, n, h, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}
		}))
		if none != 0 {
			t.Errorf("nothing was asked for, got %x", none)
		}
		one := effective(t, n, h, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_RAW"}}
		}))
		if one != 1<<unix.CAP_NET_RAW {
			t.Errorf("one was asked for, got %x", one)
		}
		all := effective(t, n, h, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"ALL"}}
		}))
		if !has(all, unix.CAP_SYS_ADMIN) || !has(all, unix.CAP_SYS_PTRACE) {
			t.Errorf("all were asked for, got %x", all)
		}
	})
}

func TestAmbientCapabilities(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		got := n.Inside(h, "grep CapAmb /proc/self/status | cut -f2", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser = &runtimeapi.Int64Value{Value: 1000}
			s.Capabilities = &runtimeapi.Capability{AddAmbientCapabilities: []string{"NET_BIND_SERVICE"}}
		}))
		must(t, got, "0000000000000400")
	})
}

func TestUnknownCapabilityIsRefused(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("true")
		cfg.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"FLY"}}
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "FLY") {
			t.Errorf("got %v", err)
		}
	})
}

func TestPrivileged(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		set := effective(t, n, h, secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true }), privilegedPod)
		if set>>unix.CAP_SYS_ADMIN&1 == 0 {
			t.Errorf("capabilities %x", set)
		}
		got := n.Inside(h, tryPaths+"; ls /dev | wc -l; grep Seccomp: /proc/self/status; mount | grep ' /sys ' | grep -q rw && echo sys",
			func(c *containerConfig) {
				keepPaths(c)
				c.Linux.SecurityContext.Privileged = true
			}, privilegedPod)
		mustContain(t, got, "version", "listed", "open", "Seccomp:\t0", "sys")
		host, err := os.ReadDir("/dev")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(got) {
			if v, err := strconv.Atoi(f); err == nil && v > 1 && v < len(host)/2 {
				t.Errorf("only %d of the host's %d devices", v, len(host))
			}
		}
	})
}

func TestPrivilegedNeedsAPrivilegedPod(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("true")
		cfg.Linux.SecurityContext.Privileged = true
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "privileged") {
			t.Errorf("got %v", err)
		}
	})
}

func TestNoNewPrivileges(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		for _, on := range []bool{true, false} {
			want := map[bool]string{true: "NoNewPrivs:\t1", false: "NoNewPrivs:\t0"}[on]
			must(t, n.Inside(h, "grep NoNewPrivs /proc/self/status",
				secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.NoNewPrivs = on })), want)
		}
	})
}

func TestSeccomp(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "no-mkdir.json")
	err := os.WriteFile(profile, []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	with := func(p *runtimeapi.SecurityProfile) func(*containerConfig) {
		return secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Seccomp = p })
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		const mode = "grep Seccomp: /proc/self/status"
		must(t, n.Inside(h, mode, with(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault})), "Seccomp:\t2")
		must(t, n.Inside(h, mode, with(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined})), "Seccomp:\t0")
		must(t, n.Inside(h, mode, nil), "Seccomp:\t0")
		local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: profile}
		must(t, n.Inside(h, "mkdir /x 2>/dev/null || echo refused", with(local)), "refused")
		// The default profile keeps a container from unsharing.
		must(t, n.Inside(h, "unshare -U true 2>/dev/null && echo unshared || echo refused",
			with(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault})), "refused")
		s := n.RunPod(h)
		cfg := node.Script("true")
		with(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/nowhere.json"})(cfg)
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "/nowhere.json") {
			t.Errorf("missing profile: %v", err)
		}
	})
}

func TestDevices(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		// Every container may use null and zero, whatever is said of them.
		got := n.Inside(h, "[ -c /dev/mynull ] && echo there; echo x > /dev/mynull && echo wrote; "+
			"(exec 3</dev/ro) && echo read; (exec 3>/dev/ro) 2>/dev/null || echo closed",
			func(c *containerConfig) {
				c.Devices = []*runtimeapi.Device{
					{HostPath: "/dev/null", ContainerPath: "/dev/mynull", Permissions: "rwm"},
					{HostPath: ownDevice(t), ContainerPath: "/dev/ro", Permissions: "r"},
				}
			})
		mustContain(t, got, "there", "wrote", "read", "closed")
		s := n.RunPod(h)
		cfg := node.Script("true")
		cfg.Devices = []*runtimeapi.Device{{HostPath: "/dev/no-such-device", ContainerPath: "/dev/x", Permissions: "rwm"}}
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "/dev/no-such-device") {
			t.Errorf("missing device: %v", err)
		}
	})
}

// ownDevice is a character device that anybody may open, and that no container
// has by itself.
func ownDevice(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/dev/fuse", "/dev/net/tun", "/dev/kmsg"} {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			_ = f.Close()
			return path
		}
	}
	t.Skip("needs /dev/fuse, /dev/net/tun or /dev/kmsg")
	return ""
}
