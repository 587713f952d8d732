package agent

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/podspec"
)

// TestNameTooLong has a pod wait whose full name the kernel would not take, until it is
// given another one. One on the node's network has none of its own.
func TestNameTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.machine.ClusterDomain, n.machine.ClusterDNS = "cluster.local", []string{"192.0.2.10"}
		long, host := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		for _, p := range []*corev1.Pod{long, host} {
			p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = strings.Repeat("s", 40), new(true)
		}
		host.Spec.HostNetwork = true
		n.boot(t, long, host)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodPending, false)
		n.expect(t, "p2", corev1.PodRunning, true)
		if !n.saw("p1 FailedCreatePodSandBox: failed to construct FQDN from pod hostname and cluster domain, FQDN p1.sss") || len(n.Calls("run p1")) > 0 {
			t.Errorf("calls %q, told %q", n.Calls(""), n.events)
		}
		short := long.DeepCopy()
		short.Spec.SetHostnameAsFQDN = nil
		n.Set([]*corev1.Pod{short, host})
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.stop()
	})
}

// TestTellsOfDNS tells once for each sandbox what of a pod's DNS could not be as it asks.
func TestTellsOfDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.machine.ClusterDomain = "cluster.local"
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.DNSPolicy = corev1.DNSClusterFirst
		p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}}
		n.boot(t, p)
		n.Exit("p1/x", 1)
		n.kill()
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		const missing = `p1 MissingClusterDNS: pod: "p1_default(0d6f7a0c-2c2f-4a8e-9d0a-000000000001)". This node does not have a ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`
		const omitted = "p1 DNSConfigForming: Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 192.0.2.1 192.0.2.2 192.0.2.3"
		if n.times(missing) != 1 || n.times(omitted) != 1 {
			t.Errorf("%q", n.events)
		}
		n.stop()
	})
}

// TestLateNetwork gives a pod the addresses and the DNS that its machine has when the sandbox
// is made and its status is told, and not those from when the agent began.
func TestLateNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var came atomic.Bool
		ips := map[bool][]string{false: {"127.0.0.1"}, true: {"192.0.2.8"}}
		n.machine.IPs = func() []string { return ips[came.Load()] }
		n.machine.DNS = func() podspec.DNS { return podspec.DNS{Servers: ips[came.Load()]} }
		early, late := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		n.boot(t, early)
		came.Store(true)
		n.Set([]*corev1.Pod{early, late})
		n.Touch(early.UID)
		synctest.Wait()
		for _, name := range []string{"p1", "p2"} {
			n.expect(t, name, corev1.PodRunning, true)
			if got, want := n.SandboxConfig(name).GetDnsConfig().GetServers(), ips[name == "p2"]; !slices.Equal(got, want) {
				t.Errorf("%s asks %q, want %q", name, got, want)
			}
			if got := n.of(name).HostIP; got != "192.0.2.8" {
				t.Errorf("%s is at %s", name, got)
			}
		}
		n.stop()
	})
}
