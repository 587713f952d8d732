package cri

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *sandbox) ips() []string {
	s.n.t.Helper()
	st, err := s.n.runtime.PodSandboxStatus(s.n.ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.id})
	if err != nil {
		s.n.t.Fatal(err)
	}
	out := []string{st.Status.Network.GetIp()}
	for _, ip := range st.Status.Network.GetAdditionalIps() {
		out = append(out, ip.Ip)
	}
	return out
}

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
func serves(t *testing.T, n *node, h string) {
	port := freePort(t)
	s := n.runPod(h, func(p *runtimeapi.PodSandboxConfig) {
		p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: port, Protocol: runtimeapi.Protocol_TCP}}
	})
	s.start(script(web))
	ip := s.ips()[0]
	for _, u := range []string{"http://" + ip + "/", fmt.Sprintf("http://127.0.0.1:%d/", port)} {
		eventually(t, "a page from "+u, func() bool { return strings.TrimSpace(fetch(u)) == "page" })
	}
	must(t, n.inside(h, "wget -qO- http://"+ip+"/; ip link show lo | grep -o 'LOOPBACK,UP'", nil), "page\nLOOPBACK,UP")
	s.remove()
	if fetch(fmt.Sprintf("http://127.0.0.1:%d/", port)) != "" {
		t.Error("the host port still answers")
	}
}

func TestBuiltInNetwork(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		serves(t, n, h)
		s := n.runPod(h)
		if ips := s.ips(); len(ips) != 2 || !strings.HasPrefix(ips[0], "10.199.") || !strings.HasPrefix(ips[1], "fd5e:") {
			t.Errorf("%v", ips)
		}
		s.remove()
	})
}

func TestConflistNetworkAndItsReadiness(t *testing.T) {
	n := startNode(t, "")
	n.pull(busybox)
	dir := filepath.Join(n.dir, "cni")
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
		st, err := n.runtime.Status(n.ctx(), &runtimeapi.StatusRequest{})
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
	eventually(t, "NetworkReady is false and says why", func() bool {
		ok, why := ready()
		return !ok && strings.Contains(why, "no-such-plugin")
	})
	bridge := fmt.Sprintf("fltc%d", os.Getpid()%100000)
	write(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"t","plugins":[
	  {"type":"bridge","bridge":%q,"isGateway":true,"ipMasq":true,"hairpinMode":true,
	   "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.198.7.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
	  {"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`, bridge, n.dir+"/ipam"))
	defer deleteLink(bridge)
	eventually(t, "NetworkReady", func() bool { ok, _ := ready(); return ok })
	for _, h := range handlers {
		serves(t, n, h)
	}
	// A pod keeps the network that it was attached to.
	s := n.runPod("")
	if ip := s.ips()[0]; !strings.HasPrefix(ip, "10.198.7.") {
		t.Error(ip)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the built-in network is back", func() bool { ok, _ := ready(); return ok })
	s.remove()
	left, err := filepath.Glob(n.dir + "/ipam/t/10.*")
	if err != nil || len(left) != 0 {
		t.Error("addresses are still reserved:", left, err)
	}
}
