package cri

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

const web = "mkdir /www && echo page > /www/index.html && httpd -f -p 80 -h /www"

func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// serves checks a pod's network: from the node, from another pod, by host port.
func serves(t *testing.T, n *node.Node, h string) {
	port := freePort(t)
	s := n.RunPod(h, func(p *runtimeapi.PodSandboxConfig) {
		p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: port, Protocol: runtimeapi.Protocol_TCP}}
	})
	s.Start(node.Script(web))
	ip := s.IPs()[0]
	for _, u := range []string{"http://" + ip + "/", fmt.Sprintf("http://127.0.0.1:%d/", port)} {
		node.Eventually(t, "a page from "+u, func() bool { return strings.TrimSpace(fetch(u)) == "page" })
	}
	must(t, n.Inside(h, "wget -qO- http://"+ip+"/; ip link show lo | grep -o 'LOOPBACK,UP'", nil), "page\nLOOPBACK,UP")
	s.Remove()
	if fetch(fmt.Sprintf("http://127.0.0.1:%d/", port)) != "" {
		t.Error("the host port still answers")
	}
}

func TestBuiltInNetwork(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		serves(t, n, h)
		s := n.RunPod(h)
		if ips := s.IPs(); len(ips) != 2 || !strings.HasPrefix(ips[0], "10.199.") || !strings.HasPrefix(ips[1], "fd5e:") {
			t.Errorf("%v", ips)
		}
		s.Remove()
	})
}

func TestConflistNetworkAndItsReadiness(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	dir := filepath.Join(n.Dir, "cni")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "10-test.conflist")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ready := func() (bool, string) {
		st, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range st.Status.Conditions {
			if c.Type == runtimeapi.NetworkReady {
				return c.Status, c.Reason + " " + c.Message
			}
		}
		t.Fatal("no NetworkReady")
		return false, ""
	}
	if ok, why := ready(); !ok {
		t.Fatal("the built-in network is not ready:", why)
	}
	write(`{"cniVersion":"1.0.0","name":"t","plugins":[{"type":"no-such-plugin"}]}`)
	node.Eventually(t, "NetworkReady is false and says why", func() bool {
		ok, why := ready()
		return !ok && strings.Contains(why, "no-such-plugin")
	})
	bridge := fmt.Sprintf("fltc%d", os.Getpid()%100000)
	write(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"t","plugins":[
	  {"type":"bridge","bridge":%q,"isGateway":true,"ipMasq":true,"hairpinMode":true,
	   "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.198.7.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
	  {"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`, bridge, n.Dir+"/ipam"))
	defer deleteLink(bridge)
	node.Eventually(t, "NetworkReady", func() bool { ok, _ := ready(); return ok })
	for _, h := range node.Handlers {
		serves(t, n, h)
	}
	// A pod keeps the network that it was attached to.
	s := n.RunPod("")
	if ip := s.IPs()[0]; !strings.HasPrefix(ip, "10.198.7.") {
		t.Error(ip)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	node.Eventually(t, "the built-in network is back", func() bool { ok, _ := ready(); return ok })
	s.Remove()
	left, err := filepath.Glob(n.Dir + "/ipam/t/10.*")
	if err != nil || len(left) != 0 {
		t.Error("addresses are still reserved:", left, err)
	}
}
