package bridge

import (
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"time"

	"fairlead.run/internal/errdefs"
)

// Config describes the pod network of this node. The zero value is what most
// nodes need.
type Config struct {
	// Bridge is the bridge's name, up to 15 characters. Default "fairlead0".
	Bridge string
	// Table is the nftables table, of the family inet. Default "fairlead".
	Table string
	// IPv4 and IPv6 are the ranges that pods get addresses from. The first
	// address of each is the bridge's. An invalid (zero) prefix means what a
	// cluster tells by UseRanges, or else one of the built-in ranges that does
	// not collide with the node's routes.
	IPv4, IPv6 netip.Prefix
	// RangesFile is where UseRanges remembers; empty means nowhere. Its folder
	// has to exist.
	RangesFile string
	// DisableIPv6 gives pods IPv4 only.
	DisableIPv6 bool
	// MTU of the pods' interfaces; 0 means that of the node's default route.
	MTU int
	// ReleaseGrace is how long a namespace may live on after Detach before the
	// pod's interface is taken out of it. Default 2 s.
	ReleaseGrace time.Duration
	// Log gets what background work has to report. Default slog.Default().
	Log *slog.Logger
}

// Ranges to choose from, the first free one wins. They keep away from those
// that Docker, Podman, the common CNI plugins, kubeadm, k3s and OpenShift use.
var (
	builtinIPv4 = []netip.Prefix{
		netip.MustParsePrefix("10.213.0.0/16"),
		netip.MustParsePrefix("10.77.0.0/16"),
		netip.MustParsePrefix("172.29.0.0/16"),
		netip.MustParsePrefix("192.168.240.0/20"),
	}
	builtinIPv6 = []netip.Prefix{
		netip.MustParsePrefix("fdfa:1e4d:6c1f::/64"),
		netip.MustParsePrefix("fdfa:1e4d:6c1f:1::/64"),
	}
)

// ifname excludes what the kernel refuses and what would be a path or a
// pattern in nftables.
var ifname = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.\-]{0,14}$`)

func (c Config) withDefaults() Config {
	if c.Bridge == "" {
		c.Bridge = "fairlead0"
	}
	if c.Table == "" {
		c.Table = "fairlead"
	}
	if c.ReleaseGrace == 0 {
		c.ReleaseGrace = 2 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate says which field is wrong, and why.
func (c Config) Validate() error {
	c = c.withDefaults()
	if !ifname.MatchString(c.Bridge) {
		return fmt.Errorf("bridge name %q is no interface name of up to 15 characters: %w", c.Bridge, errdefs.ErrInvalidArgument)
	}
	if !ifname.MatchString(c.Table) {
		return fmt.Errorf("nftables table name %q: use letters, digits, _ . or -: %w", c.Table, errdefs.ErrInvalidArgument)
	}
	if p := c.IPv4; p.IsValid() && (!p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 29) {
		return fmt.Errorf("IPv4 range %s: want an IPv4 prefix from /8 to /29: %w", p, errdefs.ErrInvalidArgument)
	}
	if p := c.IPv6; p.IsValid() && (!p.Addr().Is6() || p.Addr().Is4In6() || p.Bits() < 48 || p.Bits() > 120) {
		return fmt.Errorf("IPv6 range %s: want an IPv6 prefix from /48 to /120: %w", p, errdefs.ErrInvalidArgument)
	}
	if c.MTU != 0 && (c.MTU < 1280 || c.MTU > 65535) {
		return fmt.Errorf("MTU %d is not between 1280 and 65535: %w", c.MTU, errdefs.ErrInvalidArgument)
	}
	return nil
}
