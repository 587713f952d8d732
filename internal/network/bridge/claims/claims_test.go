package claims

import (
	"errors"
	"net/netip"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestPoolGivesEachAddressOnce(t *testing.T) {
	for prefix, want := range map[string][]string{
		"10.1.2.8/29":     {"10.1.2.10", "10.1.2.11", "10.1.2.12", "10.1.2.13", "10.1.2.14"},
		"fd00::10/125":    {"fd00::12", "fd00::13", "fd00::14", "fd00::15", "fd00::16", "fd00::17"},
		"192.168.1.77/30": {"192.168.1.78"},
	} {
		p := NewPool(netip.MustParsePrefix(prefix))
		for _, w := range want {
			if a, err := p.Take(); err != nil || a.String() != w {
				t.Fatalf("%s: got %s (%v), want %s", prefix, a, err, w)
			}
		}
		if a, err := p.Take(); !errors.Is(err, errdefs.ErrExhausted) {
			t.Errorf("%s: got %s (%v) from a full pool", prefix, a, err)
		}
		back := netip.MustParseAddr(want[0])
		p.Release(back)
		if a, err := p.Take(); err != nil || a != back {
			t.Errorf("%s: got %s (%v), want the released %s", prefix, a, err, back)
		}
	}
}

func TestPoolGoesRoundBeforeReuse(t *testing.T) {
	p := NewPool(netip.MustParsePrefix("10.1.2.0/29"))
	first, _ := p.Take()
	p.Release(first)
	if second, _ := p.Take(); second == first {
		t.Errorf("%s was given out again at once", first)
	}
}

func TestPoolClaim(t *testing.T) {
	p := NewPool(netip.MustParsePrefix("10.1.0.0/16"))
	p.Claim(netip.MustParseAddr("10.1.0.9"))
	p.Claim(netip.MustParseAddr("10.2.0.9")) // of an earlier range
	if a, _ := p.Take(); a.String() != "10.1.0.10" {
		t.Errorf("after a claim of .9 got %s, want the address behind it", a)
	}
	p = NewPool(netip.MustParsePrefix("10.1.0.0/29"))
	p.Claim(netip.MustParseAddr("10.1.0.6"))
	seen := map[netip.Addr]bool{netip.MustParseAddr("10.1.0.6"): true}
	for range 4 {
		a, err := p.Take()
		if err != nil || seen[a] {
			t.Fatalf("got %s twice (%v)", a, err)
		}
		seen[a] = true
	}
}

func TestPoolOfWideIPv6Range(t *testing.T) {
	p := NewPool(netip.MustParsePrefix("fd00:1:2:3::/64"))
	if a, err := p.Take(); err != nil || a.String() != "fd00:1:2:3::2" {
		t.Errorf("got %s (%v)", a, err)
	}
	if g := p.Gateway().String(); g != "fd00:1:2:3::1/64" {
		t.Errorf("gateway %s", g)
	}
}

func TestPorts(t *testing.T) {
	m := func(proto string, port uint16, host string) pod.PortMapping {
		return pod.PortMapping{Protocol: proto, HostPort: port, ContainerPort: 1, HostIP: host}
	}
	for name, tc := range map[string]struct {
		held, wanted pod.PortMapping
		conflict     bool
	}{
		"same":                     {m("tcp", 80, ""), m("tcp", 80, ""), true},
		"other port":               {m("tcp", 80, ""), m("tcp", 81, ""), false},
		"other protocol":           {m("tcp", 80, ""), m("udp", 80, ""), false},
		"all and one":              {m("tcp", 80, ""), m("tcp", 80, "192.0.2.1"), true},
		"one and all":              {m("tcp", 80, "192.0.2.1"), m("tcp", 80, ""), true},
		"one and another":          {m("tcp", 80, "192.0.2.1"), m("tcp", 80, "192.0.2.2"), false},
		"one and all IPv4":         {m("tcp", 80, "192.0.2.1"), m("tcp", 80, "0.0.0.0"), true},
		"all IPv4 and all IPv6":    {m("tcp", 80, "0.0.0.0"), m("tcp", 80, "::"), false},
		"all IPv6 and one IPv4":    {m("tcp", 80, "::"), m("tcp", 80, "192.0.2.1"), false},
		"the same in mapped form":  {m("tcp", 80, "192.0.2.1"), m("tcp", 80, "::ffff:192.0.2.1"), true},
		"container port published": {m("tcp", 0, ""), m("tcp", 0, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := Ports{}
			if err := b.Reserve("holder", "ns/holder", []pod.PortMapping{tc.held}); err != nil {
				t.Fatal(err)
			}
			err := b.Reserve("rival", "ns/rival", []pod.PortMapping{m("tcp", 9999, ""), tc.wanted})
			if got := errors.Is(err, errdefs.ErrAlreadyExists); got != tc.conflict {
				t.Fatalf("error %v, want a conflict: %t", err, tc.conflict)
			}
			if tc.conflict {
				if len(b[portKey{"tcp", 9999}]) != 0 {
					t.Error("the refused pod holds another of its ports")
				}
				b.Release("holder")
				if err := b.Reserve("rival", "ns/rival", []pod.PortMapping{tc.wanted}); err != nil {
					t.Errorf("after release: %v", err)
				}
			}
		})
	}
}

func TestPortTwiceInOnePod(t *testing.T) {
	b := Ports{}
	twice := []pod.PortMapping{{Protocol: "tcp", HostPort: 80, ContainerPort: 1}, {Protocol: "tcp", HostPort: 80, ContainerPort: 2}}
	if err := b.Reserve("p", "ns/p", twice); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("error %v", err)
	}
}

func TestUnownedPorts(t *testing.T) {
	b := Ports{}
	for _, id := range []pod.ID{"kept", "lost"} {
		m := pod.PortMapping{Protocol: "tcp", HostPort: 80 + uint16(len(b)), ContainerPort: 1}
		if err := b.Reserve(id, "ns/"+string(id), []pod.PortMapping{m}); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Unowned(map[pod.ID]bool{"kept": true})
	if len(got) != 1 || got["81/tcp of pod lost"] != "lost" {
		t.Errorf("got %v", got)
	}
}
