package networktest

import (
	"os"
	"testing"

	"fairlead.run/test/hostprep"
)

// Main runs the tests of a package in network and mount namespaces of their
// own. Without root it runs them where they are; NeedRoot skips then.
func Main(m *testing.M) { os.Exit(hostprep.Isolated(m.Run)) }

// NeedRoot skips a test that changes network namespaces.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces, links and nftables rules")
	}
}

// NeedIPv6 skips a test of IPv6 where the kernel has none.
func NeedIPv6(t testing.TB) {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err != nil || b[0] != '0' {
		t.Skip("needs IPv6, which is off or missing in this kernel")
	}
}
