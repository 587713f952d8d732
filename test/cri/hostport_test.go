package cri

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func onHostPort(m ...*runtimeapi.PortMapping) func(*runtimeapi.PodSandboxConfig) {
	return func(p *runtimeapi.PodSandboxConfig) { p.PortMappings = m }
}

func TestPodsReachEachOtherByIPv6(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		s.Start(node.Script(web))
		ips := s.IPs()
		if len(ips) != 2 {
			t.Fatalf("addresses %v", ips)
		}
		u := "http://[" + ips[1] + "]/"
		node.Eventually(t, "a page from the node by IPv6", func() bool { return strings.TrimSpace(fetch(u)) == "page" })
		must(t, n.Inside(h, "wget -qO- "+u, nil), "page")
		s.Remove()
	})
}

// A pod reaches itself by the port that it has on the node.
func TestHairpin(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		port := freePort(t)
		s := n.RunPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port}))
		c := s.Start(node.Script(web))
		node.Eventually(t, "the server is up", func() bool { return fetch("http://"+s.IPs()[0]+"/") != "" })
		gateway := strings.Fields(c.Exec("sh", "-c", "ip route | grep default"))[2]
		must(t, c.Exec("wget", "-qO-", fmt.Sprintf("http://%s:%d/", gateway, port)), "page")
		s.Remove()
	})
}

func TestHostPortUDP(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		port := freePort(t)
		s := n.RunPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 9000, HostPort: port, Protocol: runtimeapi.Protocol_UDP}))
		c := s.Start(node.Script("sleep 1000"))
		conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		before := unclaimed(t, c)
		node.Eventually(t, "datagrams are in the pod", func() bool {
			_, _ = conn.Write([]byte("datagram"))
			return unclaimed(t, c) > before
		})
		s.Remove()
	})
}

// unclaimed is how many datagrams came to ports of the pod where nobody
// listens; busybox has no server for UDP.
func unclaimed(t *testing.T, c *node.Container) int {
	t.Helper()
	fields := strings.Fields(c.Exec("sh", "-c", "grep ^Udp: /proc/net/snmp | tail -n 1"))
	if len(fields) < 3 {
		t.Fatalf("no counters in %q", fields)
	}
	n, err := strconv.Atoi(fields[2])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A port that is bound to one address of the node is at no other one.
func TestHostPortOfOneAddress(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		port := freePort(t)
		s := n.RunPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port, HostIp: "127.0.0.1"}))
		c := s.Start(node.Script(web))
		node.Eventually(t, "a page at the address of the mapping", func() bool {
			return strings.TrimSpace(fetch(fmt.Sprintf("http://127.0.0.1:%d/", port))) == "page"
		})
		gateway := strings.Fields(c.Exec("sh", "-c", "ip route | grep default"))[2]
		if conn, err := net.Dial("tcp", net.JoinHostPort(gateway, fmt.Sprint(port))); err == nil {
			_ = conn.Close()
			t.Errorf("the port is at %s as well", gateway)
		}
		s.Remove()
	})
}

// The annotations of the CNI bandwidth plugin hold for the built-in network.
// How much passes is looked at where the network is tested by itself.
func TestBandwidth(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		for _, limit := range []string{"", "8M"} {
			got := n.Inside(h, "tc qdisc show dev eth0", nil, func(p *runtimeapi.PodSandboxConfig) {
				if limit != "" {
					p.Annotations = map[string]string{"kubernetes.io/egress-bandwidth": limit}
				}
			})
			if strings.Contains(got, "tbf") != (limit != "") {
				t.Errorf("with a limit of %q on what leaves the pod: %q", limit, got)
			}
		}
	})
}

func TestHostPortTwice(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		port := freePort(t)
		first := n.RunPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port}))
		_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{
			Config: n.PodConfig(onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port})), RuntimeHandler: h,
		})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(port)) {
			t.Errorf("a port that another pod has: %v", err)
		}
		// The same number of another protocol is another port.
		n.RunPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port, Protocol: runtimeapi.Protocol_UDP})).Remove()
		first.Remove()
		n.RunPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port})).Remove()
	})
}
