package podspec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestResolvConf(t *testing.T) {
	long := func(n, chars int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("%0*d", chars, i))
		}
		return out
	}
	const cluster = "10.96.0.10; default.svc.cluster.local svc.cluster.local cluster.local node.example; ndots:5"
	const node = "9.9.9.9; node.example; ndots:1 edns0"
	for name, tt := range map[string]struct {
		policy corev1.DNSPolicy
		change func(*Context)
		want   string // servers, searches, options
		warns  string // reasons
	}{
		"by default":               {"", nil, cluster, ""},
		"ClusterFirst":             {corev1.DNSClusterFirst, nil, cluster, ""},
		"ClusterFirst, its node's": {corev1.DNSClusterFirst, func(c *Context) { c.Pod.Spec.HostNetwork = true }, node, ""},
		"WithHostNet":              {corev1.DNSClusterFirstWithHostNet, func(c *Context) { c.Pod.Spec.HostNetwork = true }, cluster, ""},
		"Default":                  {corev1.DNSDefault, nil, node, ""},
		"None":                     {corev1.DNSNone, nil, "; ; ", ""},
		"no cluster":               {"", func(c *Context) { c.Node.ClusterDNS = nil }, node, MissingClusterDNS},
		"no cluster at all":        {"", func(c *Context) { c.Node.ClusterDNS, c.Node.ClusterDomain = nil, "" }, node, ""},
		"no domain":                {"", func(c *Context) { c.Node.ClusterDomain = "" }, "10.96.0.10; node.example; ndots:5", ""},
		"the pod's": {"", func(c *Context) {
			c.Pod.Spec.DNSConfig = &corev1.PodDNSConfig{
				Nameservers: []string{"10.96.0.10", "1.1.1.1"}, Searches: []string{"cluster.local", "x"},
				Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}, {Name: "debug"}},
			}
		}, "10.96.0.10 1.1.1.1; default.svc.cluster.local svc.cluster.local cluster.local node.example x; ndots:2 debug", ""},
		"servers": {corev1.DNSNone, func(c *Context) {
			c.Pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: long(4, 1)}
		}, "0 1 2; ; ", DNSConfigForming},
		"searches": {corev1.DNSNone, func(c *Context) {
			c.Pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: long(33, 2)}
		}, "; " + strings.Join(long(32, 2), " ") + "; ", DNSConfigForming},
		"characters": {corev1.DNSNone, func(c *Context) {
			c.Pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: append(long(20, 99), strings.Repeat("a", 48), "b")}
		}, "; " + strings.Join(append(long(20, 99), strings.Repeat("a", 48)), " ") + "; ", DNSConfigForming}, // 20*100 + 48 = 2048
	} {
		t.Run(name, func(t *testing.T) {
			c := testContext(corev1.Container{})
			own := c.Node.DNS()
			own.Searches = []string{"node.example"}
			c.Node.ClusterDNS, c.Node.ClusterDomain, c.Node.DNS = []string{"10.96.0.10"}, "cluster.local", Fixed(own)
			c.Pod.Spec.DNSPolicy = tt.policy
			if tt.change != nil {
				tt.change(c)
			}
			d, warnings := ResolvConf(c)
			got := strings.Join([]string{strings.Join(d.Servers, " "), strings.Join(d.Searches, " "), strings.Join(d.Options, " ")}, "; ")
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			var reasons []string
			for _, w := range warnings {
				reasons = append(reasons, w.Reason)
			}
			if got := strings.Join(reasons, " "); got != tt.warns {
				t.Errorf("warnings %v", warnings)
			}
			if c.Node.ClusterDNS != nil && c.Node.ClusterDNS[0] != "10.96.0.10" || own.Options[0] != "ndots:1" {
				t.Error("the node was changed")
			}
		})
	}
}

func TestHosts(t *testing.T) {
	head := hostsHead + hostsLocal
	for name, tt := range map[string]struct {
		change     func(*corev1.PodSpec)
		kernel     string // what the sandbox is called
		hosts      string
		noFullName bool
	}{
		"plain":     {func(*corev1.PodSpec) {}, "web", head + "10.1.0.2\tweb\nfd00::2\tweb\n", false},
		"a name":    {func(s *corev1.PodSpec) { s.Hostname = "h" }, "h", head + "10.1.0.2\th\nfd00::2\th\n", false},
		"a domain":  {func(s *corev1.PodSpec) { s.Subdomain = "sub" }, "web", head + "10.1.0.2\tweb.sub.default.svc.cluster.local\tweb\nfd00::2\tweb.sub.default.svc.cluster.local\tweb\n", false},
		"in full":   {func(s *corev1.PodSpec) { s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = "h", "sub", ptr(true) }, "h.sub.default.svc.cluster.local", head + "10.1.0.2\th.sub.default.svc.cluster.local\th\nfd00::2\th.sub.default.svc.cluster.local\th\n", false},
		"no domain": {func(s *corev1.PodSpec) { s.SetHostnameAsFQDN = ptr(true) }, "web", head + "10.1.0.2\tweb\nfd00::2\tweb\n", false},
		"its own":   {func(s *corev1.PodSpec) { s.Hostname, s.Subdomain, s.HostnameOverride = "h", "sub", ptr("o.example") }, "o.example", head + "10.1.0.2\to.example\nfd00::2\to.example\n", false},
		"too long": {
			func(s *corev1.PodSpec) {
				s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = "h", strings.Repeat("s", 60), ptr(true)
			}, "h",
			head + strings.ReplaceAll("10.1.0.2\tS\th\nfd00::2\tS\th\n", "S", "h."+strings.Repeat("s", 60)+".default.svc.cluster.local"), true,
		},
		"the node's": {func(s *corev1.PodSpec) { s.HostNetwork = true }, "", hostsNodeHead + "node\n", false},
		"aliases": {func(s *corev1.PodSpec) {
			s.HostNetwork, s.HostAliases = true, []corev1.HostAlias{{IP: "10.0.0.9", Hostnames: []string{"a", "b"}}}
		}, "", hostsNodeHead + "node\n\n# Entries added by HostAliases.\n10.0.0.9\ta\tb\n", false},
	} {
		c := testContext(corev1.Container{})
		c.Node.ClusterDomain = "cluster.local"
		tt.change(&c.Pod.Spec)
		if got := Sandbox(c).Hostname; got != tt.kernel {
			t.Errorf("%s: hostname %s", name, got)
		}
		if _, err := KernelName(c); (err != nil) != tt.noFullName {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(tt.hosts, string(Hosts(c, []byte("node\n")))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestPodDomain has what names of pods end in where there is no cluster, which misses no DNS.
func TestPodDomain(t *testing.T) {
	c := testContext(corev1.Container{})
	c.Node.ClusterDNS, c.Node.ClusterDomain, c.Node.PodDomain = nil, "", "cluster.local"
	c.Pod.Spec.Hostname, c.Pod.Spec.Subdomain, c.Pod.Spec.SetHostnameAsFQDN = "db-0", "db", ptr(true)
	const full = "db-0.db.default.svc.cluster.local"
	if name, err := KernelName(c); err != nil || name != full {
		t.Errorf("%s, %v", name, err)
	}
	if hosts := string(Hosts(c, nil)); !strings.Contains(hosts, "\t"+full+"\tdb-0\n") {
		t.Errorf("%s", hosts)
	}
	if _, warnings := ResolvConf(c); len(warnings) > 0 {
		t.Errorf("%v", warnings)
	}
}
