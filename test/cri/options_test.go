package cri

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func TestRuntimeConfigNamesTheCgroupDriver(t *testing.T) {
	n := node.Start(t, "[cgroup]\ndriver = \"cgroupfs\"\n")
	r, err := n.Runtime.RuntimeConfig(n.Ctx(), &runtimeapi.RuntimeConfigRequest{})
	if err != nil || r.GetLinux().GetCgroupDriver() != runtimeapi.CgroupDriver_CGROUPFS {
		t.Errorf("%+v %v", r, err)
	}
}

func podCIDR(cidr string) *runtimeapi.UpdateRuntimeConfigRequest {
	return &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}}}
}

// The range that a cluster gives to the node is where pods get addresses from,
// also from a daemon that was not told itself.
func TestPodRangeOfTheCluster(t *testing.T) {
	n := node.Start(t, "[network]\nbridge = \"fltcluster\"\nconf_dir = \"/nonexistent\"\ndisable_ipv6 = true\n", func(n *node.Node) error {
		n.Bridge = "fltcluster"
		return nil
	})
	if _, err := n.Runtime.UpdateRuntimeConfig(n.Ctx(), podCIDR("10.197.240.0/24")); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		if again {
			n.Kill(syscall.SIGKILL)
			n.Start()
		}
		s := n.RunPod("crun")
		if ip := s.IPs()[0]; !strings.HasPrefix(ip, "10.197.240.") {
			t.Errorf("a pod got %s; the daemon was replaced: %t", ip, again)
		}
		s.Remove()
	}
}

func TestUpdateRuntimeConfig(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	if _, err := n.Runtime.UpdateRuntimeConfig(n.Ctx(), podCIDR("")); err != nil {
		t.Error(err)
	}
	if _, err := n.Runtime.UpdateRuntimeConfig(n.Ctx(), podCIDR("10.0.0.0/99")); err == nil || !strings.Contains(err.Error(), "pod_cidr") {
		t.Errorf("malformed: %v", err)
	}
}

func hugepageSize(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil || len(found) == 0 {
		t.Skip("this kernel has no huge pages")
	}
	for _, f := range found {
		if strings.HasSuffix(f, "-2048kB") {
			return "2MB"
		}
	}
	t.Skip("this kernel has no huge pages of 2 MB")
	return ""
}

func TestHugepageLimits(t *testing.T) {
	size := hugepageSize(t)
	if !isUnified() {
		if _, err := os.Stat("/sys/fs/cgroup/hugetlb/hugetlb." + size + ".usage_in_bytes"); err != nil {
			t.Skip("the hugetlb controller is not mounted for version 1")
		}
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("sleep 1000")
		limited(&runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: size, Limit: 4 << 20}}})(cfg)
		c := s.Start(cfg)
		must(t, c.CgroupFile("hugetlb", "hugetlb."+size+".limit_in_bytes", "hugetlb."+size+".max"), "4194304")
		s.Remove()
	})
}

func TestHostNetworkPodSeesTheNodesNames(t *testing.T) {
	own, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Skip("this host has no resolv.conf")
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		host := func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
			p.Hostname = ""
		}
		change := func(c *containerConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
		}
		must(t, n.Inside(h, "cat /etc/resolv.conf", change, host), string(own))
		name, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		must(t, n.Inside(h, "hostname; readlink /proc/self/ns/net", change, host), name+"\n"+readlink(t, "/proc/self/ns/net"))
		// What the pod asks for comes before what the node has.
		got := n.Inside(h, "cat /etc/resolv.conf", change, host, func(p *runtimeapi.PodSandboxConfig) {
			p.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.1.1.1"}}
		})
		mustContain(t, got, "nameserver 10.1.1.1")
	})
}

func readlink(t *testing.T, path string) string {
	t.Helper()
	s, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
