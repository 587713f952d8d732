package network

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestResolvConf(t *testing.T) {
	const node = "nameserver 192.0.2.53\n"
	for name, tc := range map[string]struct {
		dns  *pod.DNS
		want string
		bad  bool
	}{
		"none":    {nil, node, false},
		"nothing": {&pod.DNS{}, node, false},
		"all": {
			&pod.DNS{Servers: []string{"10.96.0.10", "fd00::a"}, Searches: []string{"ns.svc.cluster.local", "svc.cluster.local"}, Options: []string{"ndots:5", "edns0"}},
			"nameserver 10.96.0.10\nnameserver fd00::a\nsearch ns.svc.cluster.local svc.cluster.local\noptions ndots:5 edns0\n", false,
		},
		"a zone":            {&pod.DNS{Servers: []string{"fe80::1%eth0"}}, "nameserver fe80::1%eth0\n", false},
		"only a search":     {&pod.DNS{Searches: []string{"."}}, "search .\n", false},
		"name as server":    {&pod.DNS{Servers: []string{"dns.example"}}, "", true},
		"line in server":    {&pod.DNS{Servers: []string{"10.0.0.1\nnameserver 10.6.6.6"}}, "", true},
		"line in search":    {&pod.DNS{Searches: []string{"a\nnameserver 10.6.6.6"}}, "", true},
		"space in option":   {&pod.DNS{Options: []string{"ndots:5 debug"}}, "", true},
		"empty option":      {&pod.DNS{Options: []string{""}}, "", true},
		"control in search": {&pod.DNS{Searches: []string{"a\x00"}}, "", true},
	} {
		got, err := ResolvConf(tc.dns, []byte(node))
		if errors.Is(err, errdefs.ErrInvalidArgument) != tc.bad || string(got) != tc.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, tc.want)
		}
	}
}

func TestOnlyLoopback(t *testing.T) {
	for conf, want := range map[string]bool{
		"":                        true,
		"nameserver 127.0.0.53\n": true,
		"nameserver ::1\n":        true,
		"nameserver 127.0.0.1\nnameserver 192.0.2.1\n": false,
		"# nameserver 192.0.2.1\nnameserver 127.0.0.1": true,
		"nameserver dns.example\n":                     false,
	} {
		if got := onlyLoopback([]byte(conf)); got != want {
			t.Errorf("%q: %t, want %t", conf, got, want)
		}
	}
}

func TestHosts(t *testing.T) {
	ips := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}
	got, err := Hosts("web", ips, []HostAlias{{IP: netip.MustParseAddr("192.0.2.1"), Hostnames: []string{"db", "db.local"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"127.0.0.1\tlocalhost\n", "::1\tlocalhost", "\n10.0.0.2\tweb\n", "\nfd00::2\tweb\n", "\n192.0.2.1\tdb db.local\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	for name, alias := range map[string]HostAlias{
		"no address": {Hostnames: []string{"a"}},
		"no names":   {IP: ips[0]},
		"line":       {IP: ips[0], Hostnames: []string{"a\n6.6.6.6 bank.example"}},
		"comment":    {IP: ips[0], Hostnames: []string{"#a"}},
	} {
		if _, err := Hosts("web", ips, []HostAlias{alias}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Hosts("a b", ips, nil); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("host name with a space: %v", err)
	}
	if _, err := Hosts("", ips, nil); err != nil {
		t.Errorf("no host name: %v", err)
	}
}

func TestBandwidthOf(t *testing.T) {
	for name, tc := range map[string]struct {
		in, out string
		want    Bandwidth
		bad     bool
	}{
		"none":      {"", "", Bandwidth{}, false},
		"both":      {"10M", "1Gi", Bandwidth{Ingress: 10_000_000, Egress: 1 << 30}, false},
		"least":     {"1k", "", Bandwidth{Ingress: 1000}, false},
		"most":      {"", "1P", Bandwidth{Egress: 1e15}, false},
		"too small": {"999", "", Bandwidth{}, true},
		"too large": {"", "2P", Bandwidth{}, true},
		"negative":  {"-10M", "", Bandwidth{}, true},
		"word":      {"fast", "", Bandwidth{}, true},
	} {
		a := map[string]string{}
		if tc.in != "" {
			a[IngressBandwidth] = tc.in
		}
		if tc.out != "" {
			a[EgressBandwidth] = tc.out
		}
		got, err := BandwidthOf(a)
		if got != tc.want || errors.Is(err, errdefs.ErrInvalidArgument) != tc.bad {
			t.Errorf("%s: got %+v (%v)", name, got, err)
		}
	}
}
