package bridge

import (
	"errors"
	"net/netip"
	"strings"
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
		p := newPool(netip.MustParsePrefix(prefix))
		for _, w := range want {
			if a, err := p.take(); err != nil || a.String() != w {
				t.Fatalf("%s: got %s (%v), want %s", prefix, a, err, w)
			}
		}
		if a, err := p.take(); !errors.Is(err, errdefs.ErrExhausted) {
			t.Errorf("%s: got %s (%v) from a full pool", prefix, a, err)
		}
		back := netip.MustParseAddr(want[0])
		p.release(back)
		if a, err := p.take(); err != nil || a != back {
			t.Errorf("%s: got %s (%v), want the released %s", prefix, a, err, back)
		}
	}
}

func TestPoolGoesRoundBeforeReuse(t *testing.T) {
	p := newPool(netip.MustParsePrefix("10.1.2.0/29"))
	first, _ := p.take()
	p.release(first)
	if second, _ := p.take(); second == first {
		t.Errorf("%s was given out again at once", first)
	}
}

func TestPoolClaim(t *testing.T) {
	p := newPool(netip.MustParsePrefix("10.1.0.0/16"))
	p.claim(netip.MustParseAddr("10.1.0.9"))
	p.claim(netip.MustParseAddr("10.2.0.9")) // of an earlier range
	if a, _ := p.take(); a.String() != "10.1.0.10" {
		t.Errorf("after a claim of .9 got %s, want the address behind it", a)
	}
	p = newPool(netip.MustParsePrefix("10.1.0.0/29"))
	p.claim(netip.MustParseAddr("10.1.0.6"))
	seen := map[netip.Addr]bool{netip.MustParseAddr("10.1.0.6"): true}
	for range 4 {
		a, err := p.take()
		if err != nil || seen[a] {
			t.Fatalf("got %s twice (%v)", a, err)
		}
		seen[a] = true
	}
}

func TestPoolOfWideIPv6Range(t *testing.T) {
	p := newPool(netip.MustParsePrefix("fd00:1:2:3::/64"))
	if a, err := p.take(); err != nil || a.String() != "fd00:1:2:3::2" {
		t.Errorf("got %s (%v)", a, err)
	}
	if g := p.gateway().String(); g != "fd00:1:2:3::1/64" {
		t.Errorf("gateway %s", g)
	}
}

func TestPickRange(t *testing.T) {
	none := netip.Prefix{}
	first, second := builtinIPv4[0], builtinIPv4[1]
	r := func(s string) route { return route{dst: netip.MustParsePrefix(s), link: "tun0"} }
	p := netip.MustParsePrefix
	for name, tc := range map[string]struct {
		configured netip.Prefix
		onBridge   []netip.Prefix
		routes     []route
		want       netip.Prefix
		note, err  string
	}{
		"nothing in the way":             {configured: none, want: first},
		"other networks":                 {configured: none, routes: []route{r("192.168.1.0/24")}, want: first},
		"same range":                     {configured: none, routes: []route{{dst: first, link: "x"}}, want: second},
		"a part of it":                   {configured: none, routes: []route{r("10.213.7.0/24")}, want: second},
		"wider route prefers the next":   {configured: none, routes: []route{r("10.192.0.0/10")}, want: second},
		"default route in halves":        {configured: none, routes: []route{r("0.0.0.0/1"), r("128.0.0.0/1")}, want: first, note: "hides a part of route 0.0.0.0/1"},
		"the bridge has the second":      {configured: none, onBridge: []netip.Prefix{p("10.77.0.1/16")}, want: second},
		"the bridge's is taken now":      {configured: none, onBridge: []netip.Prefix{p("10.77.0.1/16")}, routes: []route{r("10.77.1.0/24")}, want: first},
		"all taken":                      {configured: none, routes: []route{r("10.213.0.0/16"), r("10.77.0.0/16"), r("172.29.1.1/32"), r("192.168.240.0/24")}, err: "configure a free range"},
		"configured":                     {configured: p("10.5.6.7/24"), want: p("10.5.6.0/24")},
		"configured, taken":              {configured: p("10.5.0.0/16"), routes: []route{r("10.5.9.0/24")}, err: "pod range 10.5.0.0/16 collides with route 10.5.9.0/24 dev tun0"},
		"configured within a wide route": {configured: p("10.5.0.0/16"), routes: []route{r("10.0.0.0/8")}, want: p("10.5.0.0/16"), note: "hides a part of route 10.0.0.0/8"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := pickRange(tc.configured, builtinIPv4, tc.onBridge, tc.routes)
			if tc.err != "" {
				if !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil || c.prefix != tc.want {
				t.Errorf("got %s (%v), want %s", c.prefix, err, tc.want)
			}
			if (tc.note == "") != (c.note == "") || !strings.Contains(c.note, tc.note) {
				t.Errorf("note %q, want %q", c.note, tc.note)
			}
		})
	}
}

func TestPortBook(t *testing.T) {
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
			b := portBook{}
			if err := b.reserve("holder", "ns/holder", []pod.PortMapping{tc.held}); err != nil {
				t.Fatal(err)
			}
			err := b.reserve("rival", "ns/rival", []pod.PortMapping{m("tcp", 9999, ""), tc.wanted})
			if got := errors.Is(err, errdefs.ErrAlreadyExists); got != tc.conflict {
				t.Fatalf("error %v, want a conflict: %t", err, tc.conflict)
			}
			if tc.conflict {
				if len(b[portKey{"tcp", 9999}]) != 0 {
					t.Error("the refused pod holds another of its ports")
				}
				b.release("holder")
				if err := b.reserve("rival", "ns/rival", []pod.PortMapping{tc.wanted}); err != nil {
					t.Errorf("after release: %v", err)
				}
			}
		})
	}
}

func TestPortTwiceInOnePod(t *testing.T) {
	b := portBook{}
	twice := []pod.PortMapping{{Protocol: "tcp", HostPort: 80, ContainerPort: 1}, {Protocol: "tcp", HostPort: 80, ContainerPort: 2}}
	if err := b.reserve("p", "ns/p", twice); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("error %v", err)
	}
}

func TestVethNames(t *testing.T) {
	seen := map[string]bool{}
	for _, bridge := range []string{"a", "b"} {
		for range 1000 {
			n := vethName(bridge, pod.NewID())
			if len(n) > 15 || seen[n] {
				t.Fatalf("name %q is too long or not unique", n)
			}
			seen[n] = true
		}
	}
}

func TestConfigValidate(t *testing.T) {
	p := netip.MustParsePrefix
	for name, tc := range map[string]struct {
		cfg Config
		err string
	}{
		"zero value":   {Config{}, ""},
		"all set":      {Config{Bridge: "br-x.1", Table: "t", IPv4: p("10.0.0.0/24"), IPv6: p("fd00::/64"), MTU: 9000}, ""},
		"long name":    {Config{Bridge: "abcdefghijklmnop"}, "bridge name"},
		"slash":        {Config{Bridge: "a/b"}, "bridge name"},
		"table":        {Config{Table: "a b"}, "table name"},
		"IPv6 as IPv4": {Config{IPv4: p("fd00::/64")}, "IPv4 range"},
		"IPv4 as IPv6": {Config{IPv6: p("10.0.0.0/24")}, "IPv6 range"},
		"too small":    {Config{IPv4: p("10.0.0.0/30")}, "IPv4 range"},
		"MTU":          {Config{MTU: 500}, "MTU 500"},
	} {
		err := tc.cfg.Validate()
		if (tc.err == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: error %v, want %q", name, err, tc.err)
		}
	}
}
