package nat

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead.run/internal/pod"
)

func TestElements(t *testing.T) {
	ips := []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00::2")}
	sets := func(p pod.PortMapping) string {
		var out []string
		for _, e := range Elements([]pod.PortMapping{p}, ips) {
			out = append(out, fmt.Sprintf("%s %x>%x", e.set, e.key, e.val))
		}
		return strings.Join(out, "; ")
	}
	p := pod.PortMapping{Protocol: "sctp", HostPort: 258, ContainerPort: 80}
	const to6 = "fd000000000000000000000000000002" + "00500000"
	for host, want := range map[string]string{
		"":            "ports4 8400000001020000>0a01000200500000; ports6 8400000001020000>" + to6,
		"0.0.0.0":     "ports4 8400000001020000>0a01000200500000",
		"::":          "ports6 8400000001020000>" + to6,
		"192.0.2.1":   "ports4_bound c00002018400000001020000>0a01000200500000",
		"2001:db8::1": "ports6_bound 20010db80000000000000000000000018400000001020000>" + to6,
	} {
		p.HostIP = host
		if got := sets(p); got != want {
			t.Errorf("host address %q:\n got %s\nwant %s", host, got, want)
		}
	}
}
