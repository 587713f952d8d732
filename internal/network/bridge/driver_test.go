package bridge

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
	"fairlead.run/internal/pod"
)

type rig struct {
	*Driver
	t      *testing.T
	ledger *network.Ledger
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	networktest.NeedRoot(t)
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Driver: newDriver(t, cfg, ledger), t: t, ledger: ledger}
	networktest.Start(t, r.Run)
	t.Cleanup(func() {
		for _, e := range ledger.List(Name) {
			_ = r.Detach(context.Background(), e.ID)
		}
		if err := r.Purge(context.Background()); err != nil {
			t.Errorf("Purge: %v", err)
		}
		assertClean(t)
	})
	return r
}

// assertClean fails if anything that a driver of this package makes is left.
func assertClean(t *testing.T) {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "fl") {
			t.Errorf("link %s is left", l.Attrs().Name)
		}
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, tb := range tables {
		if strings.HasPrefix(tb.Name, "fl") {
			t.Errorf("nftables table %s is left", tb.Name)
		}
	}
}

func (r *rig) attach(p *networktest.Pod) network.Result {
	r.t.Helper()
	res, err := r.Attach(context.Background(), p.Req)
	if err != nil {
		r.t.Fatalf("Attach: %v", err)
	}
	return res
}

func (r *rig) detach(p *networktest.Pod) {
	r.t.Helper()
	if err := r.Detach(context.Background(), p.Req.ID); err != nil {
		r.t.Fatalf("Detach: %v", err)
	}
	p.Drop()
}

// released waits until nothing of a pod is kept back. Its addresses are free a moment
// after its entry is gone from the ledger.
func (r *rig) released(p *networktest.Pod) {
	r.t.Helper()
	networktest.Eventually(r.t, "release of "+p.Req.Metadata.Name, func() bool {
		_, ok := r.ledger.Get(p.Req.ID)
		return !ok && !r.Releasing(p.Req.ID)
	})
}

func TestExhaustionAndReuse(t *testing.T) {
	r := newRig(t, Config{IPv4: netip.MustParsePrefix("10.197.0.0/29"), DisableIPv6: true})
	pods := make([]*networktest.Pod, 5)
	for i := range pods {
		pods[i] = networktest.NewPod(t, "p")
		r.attach(pods[i])
	}
	extra := networktest.NewPod(t, "extra")
	_, err := r.Attach(context.Background(), extra.Req)
	if !errors.Is(err, errdefs.ErrExhausted) || !strings.Contains(err.Error(), "10.197.0.0/29") {
		t.Fatalf("error %v, want exhausted with the range", err)
	}
	if _, ok := r.ledger.Get(extra.Req.ID); ok {
		t.Error("the refused pod is in the ledger")
	}
	r.detach(pods[2])
	r.released(pods[2])
	if got := r.attach(extra).IPs[0].String(); got != "10.197.0.4" {
		t.Errorf("got %s, want the released 10.197.0.4", got)
	}
}

// TestAddressWaitsForTheLink wants an address kept back for as long as the old
// pod's link exists, and the link taken away after the grace period.
func TestAddressWaitsForTheLink(t *testing.T) {
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "lingering")
	r.attach(p)
	if err := r.Detach(context.Background(), p.Req.ID); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.ledger.Get(p.Req.ID); !ok {
		t.Error("the entry went before the link")
	}
	if _, err := netlink.LinkByName(vethName("fltest0", p.Req.ID)); err != nil {
		t.Errorf("Detach itself removed the link: %v", err)
	}
	r.released(p) // the namespace was not dropped
	if _, err := netlink.LinkByName(vethName("fltest0", p.Req.ID)); !isLinkNotFound(err) {
		t.Errorf("the link is still there: %v", err)
	}
}

// TestReleaseIsTriedAgain wants addresses freed after a failure although nothing
// else happens that has to do with the network.
func TestReleaseIsTriedAgain(t *testing.T) {
	for _, place := range []string{linkTaken, flushed} {
		t.Run(place, func(t *testing.T) {
			r := newRig(t, Config{})
			p := networktest.NewPod(t, "p")
			r.attach(p)
			if err := failpoint.Enable(place + "=error@1"); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = failpoint.Enable("") }()
			r.detach(p)
			r.released(p)
		})
	}
}

func TestAttachWhileReleasing(t *testing.T) {
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "p", pod.PortMapping{Protocol: "udp", HostPort: 18053, ContainerPort: 53})
	r.attach(p)
	if err := r.Detach(context.Background(), p.Req.ID); err != nil {
		t.Fatal(err)
	}
	r.attach(p)
	if err := r.Check(context.Background(), p.Req.ID); err != nil {
		t.Error(err)
	}
}

func TestPurgeRefusesWhilePodsAreAttached(t *testing.T) {
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "p", pod.PortMapping{Protocol: "tcp", HostPort: 18080, ContainerPort: 80})
	r.attach(p)
	err := r.Purge(context.Background())
	if !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "default/p") {
		t.Errorf("error %v, want a precondition that names the pod", err)
	}
	if err := r.Check(context.Background(), p.Req.ID); err != nil {
		t.Errorf("the refused Purge broke the pod: %v", err)
	}
	if err := r.Detach(context.Background(), p.Req.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.Purge(context.Background()); err != nil { // the namespace still exists
		t.Fatal(err)
	}
	assertClean(t)
	r.attach(networktest.NewPod(t, "next"))
}

// TestPodsCannotReachLoopbackOfTheNode is about route_localnet, which lets a
// packet for 127.0.0.1 in from the bridge.
func TestPodsCannotReachLoopbackOfTheNode(t *testing.T) {
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "p")
	res := r.attach(p)
	networktest.ServeHere(t, "127.0.0.1:18099", "node")
	err := network.InNetNS(p.Path, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(lo); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("127.0.0.1/32")), Gw: res.Gateways[0].AsSlice()})
	})
	if err != nil {
		t.Skipf("this kernel does not let a pod route 127.0.0.1: %v", err)
	}
	for _, key := range []string{"all", "eth0"} {
		err := network.InNetNS(p.Path, func() error { return writeSysctl("net/ipv4/conf/"+key+"/route_localnet", "1") })
		if err != nil {
			t.Fatal(err)
		}
	}
	if name, _, err := p.Ask("127.0.0.1:18099"); err == nil {
		t.Errorf("the pod reached %q on the node's loopback address", name)
	}
}

// TestOthersFlushTheRuleset repairs what nft flush ruleset and ip link delete
// take away under running pods.
func TestOthersFlushTheRuleset(t *testing.T) {
	world := networktest.Outside(t)
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "p", pod.PortMapping{Protocol: "tcp", HostPort: 18080, ContainerPort: 80})
	r.attach(p)
	p.Serve(t, ":80", "p")
	world.Serve(t, ":81", "world")
	reachable := func() bool {
		in, _, _ := world.Ask(networktest.NodeIPv4 + ":18080")
		out, _, _ := p.Ask(networktest.OutsideIPv4 + ":81")
		return in == "p" && out == "world"
	}
	networktest.Eventually(t, "the pod is reachable to begin with", reachable)
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	conn.FlushRuleset()
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "repair after a flushed ruleset", reachable)
	br, err := netlink.LinkByName("fltest0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(br); err != nil {
		t.Fatal(err)
	}
	networktest.Eventually(t, "repair after a deleted bridge", reachable)
	if err := r.Check(context.Background(), p.Req.ID); err != nil {
		t.Errorf("Check after the repair: %v", err)
	}
	if err := r.Status(context.Background()); err != nil {
		t.Errorf("Status after the repair: %v", err)
	}
}

func TestFirewallThatDropsForwarded(t *testing.T) {
	world := networktest.Outside(t)
	r := newRig(t, Config{})
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	drop := nftables.ChainPolicyDrop
	filter := conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
	forward := conn.AddChain(&nftables.Chain{
		Table: filter, Name: "FORWARD", Type: nftables.ChainTypeFilter, Policy: &drop,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.DelTable(filter)
		if err := conn.Flush(); err != nil {
			t.Error(err)
		}
	})
	p := networktest.NewPod(t, "p")
	r.attach(p)
	world.Serve(t, ":81", "world")
	if name, _, err := p.Ask(networktest.OutsideIPv4 + ":81"); name != "world" {
		t.Errorf("the pod cannot get through: %v", err)
	}
	if notes := strings.Join(r.Notes(), "\n"); !strings.Contains(notes, "chain FORWARD drops forwarded packets by default") {
		t.Errorf("notes %q do not tell of it", notes)
	}
	r.detach(p)
	r.released(p)
	if err := r.Purge(context.Background()); err != nil {
		t.Fatal(err)
	}
	if rules, err := conn.GetRules(filter, forward); err != nil || len(rules) != 0 {
		t.Errorf("Purge left %d rules in the firewall (%v)", len(rules), err)
	}
}

func TestPortOfAProcessOnTheNode(t *testing.T) {
	r := newRig(t, Config{})
	networktest.ServeHere(t, ":18022", "sshd")
	p := networktest.NewPod(t, "p", pod.PortMapping{Protocol: "tcp", HostPort: 18022, ContainerPort: 22})
	_, err := r.Attach(context.Background(), p.Req)
	if !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), "18022/tcp is in use by a process on the node") {
		t.Errorf("error %v", err)
	}
}

// TestIPv6Loopback wants a host port refused on ::1, which no kernel
// translates, so that a client of localhost goes on to 127.0.0.1.
func TestIPv6Loopback(t *testing.T) {
	networktest.NeedIPv6(t)
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "p", pod.PortMapping{Protocol: "tcp", HostPort: 18080, ContainerPort: 80})
	r.attach(p)
	p.Serve(t, ":80", "p")
	if _, _, err := networktest.AskHere("[::1]:18080"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("::1 gave %v, want it refused at once", err)
	}
	if name, _, err := networktest.AskHere("127.0.0.1:18080"); name != "p" {
		t.Errorf("127.0.0.1: %v", err)
	}
}

func TestCollisionIsToldBeforeTheFirstPod(t *testing.T) {
	networktest.Outside(t)
	r := newRig(t, Config{IPv4: netip.MustParsePrefix("198.51.0.0/16")})
	for what, err := range map[string]error{
		"Status": r.Status(context.Background()),
		"Attach": func() error {
			_, err := r.Attach(context.Background(), networktest.NewPod(t, "p").Req)
			return err
		}(),
	} {
		if !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "198.51.100.0/24 dev uplink") {
			t.Errorf("%s gave %v, want the colliding route", what, err)
		}
	}
}

func TestBridgeNameIsTaken(t *testing.T) {
	networktest.NeedRoot(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "fltaken0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "fltaken1"}); err != nil {
		t.Fatal(err)
	}
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, Config{Bridge: "fltaken0", Table: "fltaken"}, ledger)
	_, err = d.Attach(context.Background(), networktest.NewPod(t, "p").Req)
	if err == nil || !strings.Contains(err.Error(), "fltaken0 exists and is a veth") {
		t.Errorf("error %v", err)
	}
	if err := deleteLink("fltaken0"); err != nil {
		t.Error(err)
	}
}

func TestBandwidth(t *testing.T) {
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "p")
	p.Req.Annotations = map[string]string{network.IngressBandwidth: "8M", network.EgressBandwidth: "16M"}
	r.attach(p)
	rate := func(name string) (bits uint64) {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		qs, err := netlink.QdiscList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qs {
			if tbf, ok := q.(*netlink.Tbf); ok {
				bits = tbf.Rate * 8
			}
		}
		return bits
	}
	if got := rate(vethName("fltest0", p.Req.ID)); got != 8_000_000 {
		t.Errorf("ingress is limited to %d bits per second", got)
	}
	err := network.InNetNS(p.Path, func() error {
		if got := rate("eth0"); got != 16_000_000 {
			t.Errorf("egress is limited to %d bits per second", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p = networktest.NewPod(t, "bad")
	p.Req.Annotations = map[string]string{network.IngressBandwidth: "fast"}
	if _, err := r.Attach(context.Background(), p.Req); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("error %v, want an invalid argument", err)
	}
}

// TestReboot wants entries of an earlier boot gone: no link outlives it.
func TestReboot(t *testing.T) {
	networktest.NeedRoot(t)
	dir := t.TempDir()
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: dir, BootID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, Config{}, ledger)
	p := networktest.NewPod(t, "p")
	if _, err := d.Attach(context.Background(), p.Req); err != nil {
		t.Fatal(err)
	}
	p.Drop()
	if err := deleteLink(vethName("fltest0", p.Req.ID)); err != nil {
		t.Fatal(err)
	}
	ledger, err = network.OpenLedger(network.LedgerConfig{Dir: dir, BootID: "two"})
	if err != nil {
		t.Fatal(err)
	}
	d = newDriver(t, Config{}, ledger)
	if got := d.entries(); len(got) != 0 {
		t.Errorf("%d entries outlived the boot", len(got))
	}
	if err := d.Reconcile(context.Background(), func(pod.ID) bool { return false }); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%d files outlived the boot (%v)", len(files), err)
	}
	if err := d.Purge(context.Background()); err != nil {
		t.Error(err)
	}
	assertClean(t)
}

// TestChangedRange wants a pod of the earlier range to go on.
func TestChangedRange(t *testing.T) {
	world := networktest.Outside(t)
	world.Serve(t, ":81", "world")
	r := newRig(t, Config{IPv4: netip.MustParsePrefix("10.196.0.0/24"), DisableIPv6: true})
	old := networktest.NewPod(t, "old")
	r.attach(old)
	r.Driver = newDriver(t, Config{IPv4: netip.MustParsePrefix("10.195.0.0/24"), DisableIPv6: true}, r.ledger)
	next := networktest.NewPod(t, "next")
	if got := r.attach(next).IPs[0].String(); got != "10.195.0.2" {
		t.Errorf("next pod got %s", got)
	}
	for _, p := range []*networktest.Pod{old, next} {
		if name, _, err := p.Ask(net.JoinHostPort(networktest.OutsideIPv4, "81")); name != "world" {
			t.Errorf("pod %s cannot reach the world: %v", p.Req.Metadata.Name, err)
		}
	}
	if name, _, err := func() (string, netip.Addr, error) {
		next.Serve(t, ":80", "next")
		return old.Ask("10.195.0.2:80")
	}(); name != "next" {
		t.Errorf("old pod cannot reach the next: %v", err)
	}
}
