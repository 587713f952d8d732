package network_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
	"fairlead.run/internal/pod"
)

// wire puts a veth between here and the space, named eth0 there.
func wire(t *testing.T, s *networktest.Space) {
	t.Helper()
	ns, err := network.OpenNetNS(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "fltcount"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.FD())}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	if err := netlink.LinkSetUp(veth); err != nil {
		t.Fatal(err)
	}
	err = network.InNetNS(s.Path, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inside are the counters as somebody in the namespace sees them.
func inside(t *testing.T, s *networktest.Space, name string) *netlink.LinkStatistics {
	t.Helper()
	var out *netlink.LinkStatistics
	err := network.InNetNS(s.Path, func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			out = l.Attrs().Statistics
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCounters(t *testing.T) {
	networktest.NeedRoot(t)
	s := networktest.NewSpace(t)
	networktest.LoopbackUp(t, s)
	var c network.Counters
	if got, err := c.In(s.Path); err != nil || len(got) != 0 {
		t.Errorf("of a namespace with a loopback alone: %+v %v", got, err)
	}
	wire(t, s)
	// An interface that comes up sends by itself, where there is IPv6.
	networktest.Eventually(t, "the counters to be those seen inside", func() bool {
		got, err := c.In(s.Path)
		if err != nil || len(got) != 1 {
			t.Fatalf("%+v %v", got, err)
		}
		want := inside(t, s, "eth0")
		return got[0] == pod.InterfaceUsage{
			Name: "eth0", Default: true,
			RxBytes: want.RxBytes, RxError: want.RxErrors, RxPackets: want.RxPackets, RxDropped: want.RxDropped,
			TxBytes: want.TxBytes, TxError: want.TxErrors, TxPackets: want.TxPackets, TxDropped: want.TxDropped,
		}
	})
}

// A name that cannot be told would take the answer of the whole node with it.
func TestCountersOfAHostileName(t *testing.T) {
	networktest.NeedRoot(t)
	s := networktest.NewSpace(t)
	wire(t, s)
	err := network.InNetNS(s.Path, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "bad\xff\xfe"))
	})
	if err != nil {
		t.Fatal(err)
	}
	var c network.Counters
	if got, err := c.In(s.Path); err != nil || len(got) != 1 || got[0].Name != "bad\uFFFD" || got[0].Default {
		t.Errorf("%+v %v", got, err)
	}
}

func TestCountersOfManyAtOnce(t *testing.T) {
	networktest.NeedRoot(t)
	var c network.Counters
	var wg sync.WaitGroup
	for range 8 {
		s := networktest.NewSpace(t)
		for range 20 {
			wg.Go(func() {
				if got, err := c.In(s.Path); err != nil || len(got) != 0 {
					t.Errorf("%+v %v", got, err)
				}
			})
		}
	}
	wg.Wait()
}

func TestCountersOfNoNamespace(t *testing.T) {
	networktest.NeedRoot(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var c network.Counters
	if _, err := c.In(plain); err == nil {
		t.Error("a file was taken for a namespace")
	}
	if _, err := c.In(plain + ".missing"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Error(err)
	}
}
