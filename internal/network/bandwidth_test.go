package network

import (
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
)

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
		"vast":      {"1e1000000000", "", Bandwidth{}, true},
		"tiny":      {"1e-1000000000", "", Bandwidth{}, true},
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
