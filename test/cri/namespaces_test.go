package cri

import (
	"os"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func hostNS(t *testing.T, kind string) string {
	t.Helper()
	s, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *container) ns(kind string) string {
	c.s.n.t.Helper()
	return strings.TrimSpace(c.exec("readlink", "/proc/self/ns/"+kind))
}

func options(o *runtimeapi.NamespaceOption) (func(*runtimeapi.PodSandboxConfig), func(*containerConfig)) {
	return func(p *runtimeapi.PodSandboxConfig) { p.Linux.SecurityContext.NamespaceOptions = o },
		func(c *containerConfig) { c.Linux.SecurityContext.NamespaceOptions = o }
}

// pair starts a pod with two containers under these options.
func pair(n *node, h string, o *runtimeapi.NamespaceOption) (a, b *container) {
	n.t.Helper()
	pod, ctr := options(o)
	s := n.runPod(h, pod)
	for _, c := range []**container{&a, &b} {
		cfg := script("sleep 1000")
		ctr(cfg)
		*c = s.start(cfg)
	}
	return a, b
}

func TestNamespacesOfThePod(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		a, b := pair(n, h, &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER})
		for _, kind := range []string{"net", "ipc", "uts"} {
			if a.ns(kind) != b.ns(kind) || a.ns(kind) == hostNS(t, kind) {
				t.Errorf("%s: %s, %s, host %s", kind, a.ns(kind), b.ns(kind), hostNS(t, kind))
			}
		}
		for _, kind := range []string{"pid", "mnt"} {
			if a.ns(kind) == b.ns(kind) || a.ns(kind) == hostNS(t, kind) {
				t.Errorf("%s is shared", kind)
			}
		}
		a.s.remove()
	})
}

func TestSharedPIDNamespace(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		a, b := pair(n, h, &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD})
		if a.ns("pid") != b.ns("pid") || a.ns("pid") == hostNS(t, "pid") {
			t.Error(a.ns("pid"), b.ns("pid"))
		}
		if got := a.exec("ps"); strings.Count(got, "sleep 1000") < 2 || !strings.Contains(got, "pause") {
			t.Errorf("ps: %s", got)
		}
		b.stop(0)
		if a.status().State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Error("the end of one container ended the other")
		}
		a.s.remove()
	})
}

func TestNamespacesOfTheNode(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		a, _ := pair(n, h, &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
		})
		for _, kind := range []string{"net", "ipc", "pid"} {
			if a.ns(kind) != hostNS(t, kind) {
				t.Errorf("%s is not the node's", kind)
			}
		}
		st, err := n.runtime.PodSandboxStatus(n.ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: a.s.id})
		if err != nil || st.Status.Network.GetIp() != "" {
			t.Errorf("%+v %v", st.GetStatus(), err)
		}
		a.s.remove()
	})
}

func TestTargetPIDNamespace(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		target := s.start(script("sleep 1000"))
		cfg := script("sleep 2000")
		cfg.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target.id}
		debug := s.start(cfg)
		if debug.ns("pid") != target.ns("pid") {
			t.Error("not the target's PID namespace")
		}
		if got := debug.exec("ps"); !strings.Contains(got, "sleep 1000") {
			t.Errorf("ps: %s", got)
		}
		bad := script("true")
		bad.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: "nobody"}
		if _, err := s.tryCreate(bad); err == nil || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("unknown target: %v", err)
		}
		s.remove()
	})
}

func TestSysctls(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		got := n.inside(h, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced", nil, func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "81", "kernel.shm_rmid_forced": "1"}
		})
		must(t, got, "81\n1")
		bad := n.podConfig(func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.Sysctls = map[string]string{"vm.swappiness": "1"}
		})
		_, err := n.runtime.RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{Config: bad, RuntimeHandler: h})
		if err == nil || !strings.Contains(err.Error(), "vm.swappiness") {
			t.Errorf("a sysctl of the whole node must be refused: %v", err)
		}
	})
}
