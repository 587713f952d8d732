package bridge

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

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
