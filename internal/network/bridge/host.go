package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/bridge/claims"
	"fairlead.run/internal/network/bridge/nat"
)

var (
	bridgeMade   = failpoint.Register("bridge.made")
	gatewaysMade = failpoint.Register("bridge.gateways-made")
	rulesMade    = failpoint.Register("bridge.rules-made")
)

// acquireHost makes the shared part of the network if it is not there, and
// keeps it from being removed until release is called.
func (d *Driver) acquireHost() (h *host, release func(), err error) {
	for {
		d.hostMu.RLock()
		if d.host != nil {
			return d.host, d.hostMu.RUnlock, nil
		}
		d.hostMu.RUnlock()
		if err := d.ensureHost(); err != nil {
			return nil, nil, err
		}
	}
}

func (d *Driver) ensureHost() error {
	d.hostMu.Lock()
	defer d.hostMu.Unlock()
	if d.host != nil {
		return nil
	}
	h, err := d.makeHost()
	if err != nil {
		return fmt.Errorf("set up bridge network %s: %w", d.cfg.Bridge, err)
	}
	d.host = h
	return nil
}

// makeHost brings the host to what it should be, whatever it was before. An
// earlier process's bridge, addresses, rules and links are taken over.
func (d *Driver) makeHost() (*host, error) {
	choices, notes, err := d.chooseRanges()
	if err != nil {
		return nil, err
	}
	h := &host{notes: notes}
	d.takeOver(choices)
	if h.mtu = d.cfg.MTU; h.mtu == 0 {
		h.mtu = d.routeMTU()
	}
	gateways := d.gateways(choices)
	br, err := d.ensureBridge(h, gateways[0])
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit(bridgeMade); err != nil {
		return nil, err
	}
	h.index = br.Attrs().Index
	if err := d.ensureGateways(br, gateways); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(gatewaysMade); err != nil {
		return nil, err
	}
	if err := d.forward(h, len(choices) > 1); err != nil {
		return nil, err
	}
	ranges := make([]netip.Prefix, 0, len(gateways))
	for _, g := range gateways {
		ranges = append(ranges, g.Masked())
	}
	d.nat.SetRanges(ranges)
	if h.natErr = d.nat.Rebuild(); h.natErr == nil {
		h.notes = append(h.notes, d.nat.Admit()...)
	}
	if err := failpoint.Hit(rulesMade); err != nil {
		return nil, err
	}
	return h, d.rejoin(h)
}

// chooseRanges picks the ranges that pods get addresses from, IPv4 first.
// d.hostMu is held.
func (d *Driver) chooseRanges() (ranges []netip.Prefix, notes []string, err error) {
	routes, onBridge, err := d.survey()
	if err != nil {
		return nil, nil, err
	}
	c, err := pickRange(rangeOf(d.cfg.IPv4, d.cluster4), builtinIPv4, onBridge, routes)
	if err != nil {
		return nil, nil, err
	}
	picked := []choice{c}
	if !d.cfg.DisableIPv6 {
		if hasIPv6() {
			c, err := pickRange(rangeOf(d.cfg.IPv6, d.cluster6), builtinIPv6, onBridge, routes)
			if err != nil {
				return nil, nil, err
			}
			picked = append(picked, c)
		} else {
			notes = append(notes, "IPv6 is off or missing on this node: pods get IPv4 addresses only")
		}
	}
	for _, c := range picked {
		ranges = append(ranges, c.prefix)
		if c.note != "" {
			notes = append(notes, c.note)
		}
	}
	return ranges, notes, nil
}

// survey lists the node's routes without the bridge's, and the bridge's
// addresses.
func (d *Driver) survey() (routes []route, onBridge []netip.Prefix, err error) {
	links, err := network.Dump(d.nl.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list links: %w", err)
	}
	names, own := map[int]string{}, -1
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		if l.Attrs().Name == d.cfg.Bridge {
			own = l.Attrs().Index
			if onBridge, err = d.addresses(l); err != nil {
				return nil, nil, err
			}
		}
	}
	all, err := d.routes()
	if err != nil {
		return nil, nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range all {
		dst, ok := prefixOf(r.Dst)
		if ok && dst.Bits() > 0 && r.LinkIndex != own && !dst.Addr().IsLinkLocalUnicast() && !dst.Addr().IsMulticast() {
			routes = append(routes, route{dst: dst, link: names[r.LinkIndex]})
		}
	}
	return routes, onBridge, nil
}

func (d *Driver) routes() ([]netlink.Route, error) {
	return network.Dump(func() ([]netlink.Route, error) { return d.nl.RouteList(nil, netlink.FAMILY_ALL) })
}

func (d *Driver) addresses(l netlink.Link) ([]netip.Prefix, error) {
	addrs, err := network.Dump(func() ([]netlink.Addr, error) { return d.nl.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

// takeOver starts with these ranges, less what the ledger's pods have.
func (d *Driver) takeOver(ranges []netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools = nil
	for _, r := range ranges {
		d.pools = append(d.pools, claims.NewPool(r))
	}
	for _, e := range d.entries() {
		for _, ip := range e.Result.IPs {
			for _, p := range d.pools {
				p.Claim(ip)
			}
		}
		if _, gone := d.releasing[d.recordOf(e).Veth]; gone {
			continue
		}
		// They cannot conflict: they did not when they were recorded.
		_ = d.ports.Reserve(e.ID, podName(e.Request.Metadata), e.Request.Ports)
		d.nat.Note(e.ID, nat.Elements(e.Request.Ports, e.Result.IPs))
	}
}

// gateways are the bridge's addresses: one for each range, and those by which
// pods of an earlier configuration still leave.
func (d *Driver) gateways(ranges []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range ranges {
		out = append(out, claims.NewPool(r).Gateway())
	}
	for _, e := range d.entries() {
		for _, g := range d.recordOf(e).Gateways {
			if g.IsValid() && !slices.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
}

// routeMTU is the smallest MTU among the links of the node's default routes,
// so that pods need not discover it.
func (d *Driver) routeMTU() int {
	const usual = 1500
	routes, err := d.routes()
	if err != nil {
		return usual
	}
	mtu := 0
	for _, r := range routes {
		if dst, ok := prefixOf(r.Dst); ok && dst.Bits() > 0 {
			continue
		}
		l, err := d.nl.LinkByIndex(r.LinkIndex)
		if err == nil && l.Attrs().MTU >= 1280 && (mtu == 0 || l.Attrs().MTU < mtu) {
			mtu = l.Attrs().MTU
		}
	}
	if mtu == 0 {
		return usual
	}
	return mtu
}

func (d *Driver) ensureBridge(h *host, gateway netip.Prefix) (netlink.Link, error) {
	l, err := d.nl.LinkByName(d.cfg.Bridge)
	if isLinkNotFound(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.Flags = d.cfg.Bridge, h.mtu, net.FlagUp
		// Fixed, or it would change with the first and last pod.
		attrs.HardwareAddr = hardwareAddr(gateway.Addr())
		snooping := false // without a querier it only delays neighbour discovery
		err = d.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("create bridge: %w", err)
		}
		l, err = d.nl.LinkByName(d.cfg.Bridge)
	}
	if err != nil {
		return nil, fmt.Errorf("find bridge: %w", err)
	}
	if l.Type() != "bridge" {
		return nil, fmt.Errorf("interface %s exists and is a %s: configure another bridge name: %w", d.cfg.Bridge, l.Type(), errdefs.ErrPrecondition)
	}
	if err := d.nl.LinkSetUp(l); err != nil {
		return nil, fmt.Errorf("bring bridge up: %w", err)
	}
	return l, nil
}

func (d *Driver) ensureGateways(br netlink.Link, gateways []netip.Prefix) error {
	for _, g := range gateways {
		addr := &netlink.Addr{IPNet: ipNet(g)}
		if g.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := d.nl.AddrReplace(br, addr); err != nil {
			return fmt.Errorf("give the bridge address %s: %w", g, err)
		}
	}
	return nil
}

func (d *Driver) delAddress(br netlink.Link, g netip.Prefix) error {
	if err := d.nl.AddrDel(br, &netlink.Addr{IPNet: ipNet(g)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("take address %s off the bridge: %w", g, err)
	}
	return nil
}

func (d *Driver) forward(h *host, ipv6 bool) error {
	notes, err := forwardIPv4(d.cfg.Bridge)
	if err != nil {
		return err
	}
	h.notes = append(h.notes, notes...)
	if !ipv6 {
		return nil
	}
	notes, err = forwardIPv6(d.cfg.Bridge)
	h.notes = append(h.notes, notes...)
	return err
}

// rejoin puts the links of running pods on the bridge, which is a new one if
// somebody removed the old one.
func (d *Driver) rejoin(h *host) error {
	for _, e := range d.entries() {
		l, err := d.nl.LinkByName(d.recordOf(e).Veth)
		if isLinkNotFound(err) {
			continue
		}
		if err == nil && l.Attrs().MasterIndex != h.index {
			err = errors.Join(d.nl.LinkSetMasterByIndex(l, h.index), d.nl.LinkSetHairpin(l, true))
		}
		if err != nil {
			return fmt.Errorf("put pod %s back on the bridge: %w", e.ID, err)
		}
	}
	return nil
}
