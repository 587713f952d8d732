package bridge

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
)

var cluster = netip.MustParsePrefix("10.197.8.0/24")

// TestClusterRanges wants new pods in the range that the cluster gives, and
// those that run before to keep their address and their way out.
func TestClusterRanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ranges.json")
	r := newRig(t, Config{RangesFile: file, DisableIPv6: true})
	old := networktest.NewPod(t, "old")
	oldIP := r.attach(old).IPs[0]
	old.Serve(t, oldIP.String()+":80", "old")
	if err := r.UseRanges([]netip.Prefix{cluster}); err != nil {
		t.Fatal(err)
	}
	young := networktest.NewPod(t, "young")
	res := r.attach(young)
	if !cluster.Contains(res.IPs[0]) || res.Gateways[0] != netip.MustParseAddr("10.197.8.1") {
		t.Fatalf("the new pod got %v by %v, want the range %s", res.IPs, res.Gateways, cluster)
	}
	young.Serve(t, res.IPs[0].String()+":80", "young")
	if name, _, err := young.Ask(oldIP.String() + ":80"); name != "old" || err != nil {
		t.Errorf("the new pod reached %q at the old one: %v", name, err)
	}
	if name, _, err := old.Ask(res.IPs[0].String() + ":80"); name != "young" || err != nil {
		t.Errorf("the old pod reached %q at the new one: %v", name, err)
	}
	if name, _, err := networktest.AskHere(oldIP.String() + ":80"); name != "old" || err != nil {
		t.Errorf("the node reached %q at the old pod: %v", name, err)
	}

	again := newDriver(t, Config{RangesFile: file, DisableIPv6: true}, r.ledger)
	if again.cluster4 != cluster {
		t.Errorf("the next daemon knows %v, want %s", again.cluster4, cluster)
	}
}

// TestClusterRangesMoveAnIdleBridge wants the address of a range that nobody
// uses any more taken off the bridge: its route would stay as well.
func TestClusterRangesMoveAnIdleBridge(t *testing.T) {
	r := newRig(t, Config{DisableIPv6: true})
	p := networktest.NewPod(t, "p")
	r.attach(p)
	r.detach(p)
	r.released(p)
	if err := r.UseRanges([]netip.Prefix{cluster}); err != nil {
		t.Fatal(err)
	}
	br, err := netlink.LinkByName("fltest0")
	if err != nil {
		t.Fatal(err)
	}
	have, err := r.addresses(br)
	if err != nil {
		t.Fatal(err)
	}
	have = slices.DeleteFunc(have, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if want := []netip.Prefix{netip.MustParsePrefix("10.197.8.1/24")}; !slices.Equal(have, want) {
		t.Errorf("the bridge has %v, want %v", have, want)
	}
}

func TestClusterRangesRefused(t *testing.T) {
	networktest.NeedRoot(t)
	r := newRig(t, Config{DisableIPv6: true})
	networktest.Outside(t)
	routes, _, err := r.survey()
	if err != nil || len(routes) == 0 {
		t.Fatalf("routes of the node: %v, %v", routes, err)
	}
	taken := routes[slices.IndexFunc(routes, func(r route) bool { return r.dst.Addr().Is4() })].dst
	for _, tt := range []struct {
		name   string
		ranges []netip.Prefix
		want   error
	}{
		{"two of a family", []netip.Prefix{cluster, netip.MustParsePrefix("10.197.9.0/24")}, errdefs.ErrInvalidArgument},
		{"too small", []netip.Prefix{netip.MustParsePrefix("10.197.8.0/30")}, errdefs.ErrInvalidArgument},
		{"a route leads there", []netip.Prefix{taken}, errdefs.ErrPrecondition},
	} {
		if err := r.UseRanges(tt.ranges); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		if r.cluster4.IsValid() {
			t.Errorf("%s: %s was taken", tt.name, r.cluster4)
		}
	}
}

func TestConfiguredRangeWins(t *testing.T) {
	r := newRig(t, Config{IPv4: netip.MustParsePrefix("10.197.0.0/24"), DisableIPv6: true})
	if err := r.UseRanges([]netip.Prefix{cluster}); err != nil {
		t.Fatal(err)
	}
	p := networktest.NewPod(t, "p")
	if ip := r.attach(p).IPs[0]; !r.cfg.IPv4.Contains(ip) {
		t.Errorf("got %s, want one of the configured range %s", ip, r.cfg.IPv4)
	}
}

// TestDamagedRangesFile wants a node that starts all the same.
func TestDamagedRangesFile(t *testing.T) {
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"ranges":["10.0.0.0/31"]}`} {
		file := filepath.Join(t.TempDir(), "ranges.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d := newDriver(t, Config{RangesFile: file}, ledger); d.cluster4.IsValid() {
			t.Errorf("%q gave %s", text, d.cluster4)
		}
	}
}
