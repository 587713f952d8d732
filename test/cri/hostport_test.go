package cri

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func onHostPort(m ...*runtimeapi.PortMapping) func(*runtimeapi.PodSandboxConfig) {
	return func(p *runtimeapi.PodSandboxConfig) { p.PortMappings = m }
}

func TestPodsReachEachOtherByIPv6(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		s.start(script(web))
		ips := s.ips()
		if len(ips) != 2 {
			t.Fatalf("addresses %v", ips)
		}
		u := "http://[" + ips[1] + "]/"
		eventually(t, "a page from the node by IPv6", func() bool { return strings.TrimSpace(fetch(u)) == "page" })
		must(t, n.inside(h, "wget -qO- "+u, nil), "page")
		s.remove()
	})
}

// A pod reaches itself by the port that it has on the node.
func TestHairpin(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		port := freePort(t)
		s := n.runPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port}))
		c := s.start(script(web))
		eventually(t, "the server is up", func() bool { return fetch("http://"+s.ips()[0]+"/") != "" })
		gateway := strings.Fields(c.exec("sh", "-c", "ip route | grep default"))[2]
		must(t, c.exec("wget", "-qO-", fmt.Sprintf("http://%s:%d/", gateway, port)), "page")
		s.remove()
	})
}

func TestHostPortUDP(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		port := freePort(t)
		s := n.runPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 9000, HostPort: port, Protocol: runtimeapi.Protocol_UDP}))
		c := s.start(script("sleep 1000"))
		conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		before := unclaimed(t, c)
		eventually(t, "datagrams are in the pod", func() bool {
			_, _ = conn.Write([]byte("datagram"))
			return unclaimed(t, c) > before
		})
		s.remove()
	})
}

// unclaimed is how many datagrams came to ports of the pod where nobody
// listens; busybox has no server for UDP.
func unclaimed(t *testing.T, c *container) int {
	t.Helper()
	fields := strings.Fields(c.exec("sh", "-c", "grep ^Udp: /proc/net/snmp | tail -n 1"))
	if len(fields) < 3 {
		t.Fatalf("no counters in %q", fields)
	}
	n, err := strconv.Atoi(fields[2])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHostPortTwice(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		port := freePort(t)
		first := n.runPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port}))
		_, err := n.runtime.RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{
			Config: n.podConfig(onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port})), RuntimeHandler: h,
		})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(port)) {
			t.Errorf("a port that another pod has: %v", err)
		}
		// The same number of another protocol is another port.
		n.runPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port, Protocol: runtimeapi.Protocol_UDP})).remove()
		first.remove()
		n.runPod(h, onHostPort(&runtimeapi.PortMapping{ContainerPort: 80, HostPort: port})).remove()
	})
}
