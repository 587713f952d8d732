package cri

import (
	"os"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func hostNS(t *testing.T, kind string) string {
	t.Helper()
	s, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func options(o *runtimeapi.NamespaceOption) (func(*runtimeapi.PodSandboxConfig), func(*containerConfig)) {
	return func(p *runtimeapi.PodSandboxConfig) { p.Linux.SecurityContext.NamespaceOptions = o },
		func(c *containerConfig) { c.Linux.SecurityContext.NamespaceOptions = o }
}

// pair starts a pod with two containers under these options.
func pair(n *node.Node, h string, o *runtimeapi.NamespaceOption) (a, b *node.Container) {
	n.T.Helper()
	pod, ctr := options(o)
	s := n.RunPod(h, pod)
	for _, c := range []**node.Container{&a, &b} {
		cfg := node.Script("sleep 1000")
		ctr(cfg)
		*c = s.Start(cfg)
	}
	return a, b
}

func TestNamespacesOfThePod(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		a, b := pair(n, h, &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER})
		for _, kind := range []string{"net", "ipc", "uts"} {
			if a.NS(kind) != b.NS(kind) || a.NS(kind) == hostNS(t, kind) {
				t.Errorf("%s: %s, %s, host %s", kind, a.NS(kind), b.NS(kind), hostNS(t, kind))
			}
		}
		for _, kind := range []string{"pid", "mnt"} {
			if a.NS(kind) == b.NS(kind) || a.NS(kind) == hostNS(t, kind) {
				t.Errorf("%s is shared", kind)
			}
		}
		a.Sandbox.Remove()
	})
}

func TestSharedPIDNamespace(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		a, b := pair(n, h, &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD})
		if a.NS("pid") != b.NS("pid") || a.NS("pid") == hostNS(t, "pid") {
			t.Error(a.NS("pid"), b.NS("pid"))
		}
		if got := a.Exec("ps"); strings.Count(got, "sleep 1000") < 2 || !strings.Contains(got, "pause") {
			t.Errorf("ps: %s", got)
		}
		b.Stop(0)
		if a.Status().State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Error("the end of one container ended the other")
		}
		a.Sandbox.Remove()
	})
}

func TestNamespacesOfTheNode(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		a, _ := pair(n, h, &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
		})
		for _, kind := range []string{"net", "ipc", "pid"} {
			if a.NS(kind) != hostNS(t, kind) {
				t.Errorf("%s is not the node's", kind)
			}
		}
		st, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: a.Sandbox.ID})
		if err != nil || st.Status.Network.GetIp() != "" {
			t.Errorf("%+v %v", st.GetStatus(), err)
		}
		a.Sandbox.Remove()
	})
}

func TestTargetPIDNamespace(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		target := s.Start(node.Script("sleep 1000"))
		cfg := node.Script("sleep 2000")
		cfg.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target.ID}
		debug := s.Start(cfg)
		if debug.NS("pid") != target.NS("pid") {
			t.Error("not the target's PID namespace")
		}
		if got := debug.Exec("ps"); !strings.Contains(got, "sleep 1000") {
			t.Errorf("ps: %s", got)
		}
		bad := node.Script("true")
		bad.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: "nobody"}
		if _, err := s.TryCreate(bad); err == nil || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("unknown target: %v", err)
		}
		s.Remove()
	})
}

func TestSysctls(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		got := n.Inside(h, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced", nil, func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "81", "kernel.shm_rmid_forced": "1"}
		})
		must(t, got, "81\n1")
		bad := n.PodConfig(func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.Sysctls = map[string]string{"vm.swappiness": "1"}
		})
		_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: bad, RuntimeHandler: h})
		if err == nil || !strings.Contains(err.Error(), "vm.swappiness") {
			t.Errorf("a sysctl of the whole node must be refused: %v", err)
		}
	})
}
