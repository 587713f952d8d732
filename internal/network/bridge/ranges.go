package bridge

import (
	"fmt"
	"net/netip"

	"fairlead.run/internal/errdefs"
)

// route is a route of the node that does not belong to the bridge.
type route struct {
	dst  netip.Prefix
	link string
}

// choice is the range that was picked, and what is to be said about it.
type choice struct {
	prefix netip.Prefix
	note   string
}

// pickRange chooses a pod range. A configured one is taken unless a route of
// the node leads into it, since packets to pods would go there. Of the built-in
// ones, that which the bridge has already wins, then the first that no route
// touches at all.
func pickRange(configured netip.Prefix, builtin, onBridge []netip.Prefix, routes []route) (choice, error) {
	if configured.IsValid() {
		configured = configured.Masked()
		if r, ok := routeInto(configured, routes); ok {
			return choice{}, fmt.Errorf("pod range %s collides with route %s dev %s: configure another range: %w",
				configured, r.dst, r.link, errdefs.ErrPrecondition)
		}
		return choice{prefix: configured, note: shadowNote(configured, routes)}, nil
	}
	for _, p := range builtin {
		for _, have := range onBridge {
			if _, taken := routeInto(p, routes); have.Masked() == p && !taken {
				return choice{prefix: p}, nil
			}
		}
	}
	var second netip.Prefix
	for _, p := range builtin {
		if _, taken := routeInto(p, routes); taken {
			continue
		}
		if shadowNote(p, routes) == "" {
			return choice{prefix: p}, nil
		}
		if !second.IsValid() {
			second = p
		}
	}
	if second.IsValid() {
		return choice{prefix: second, note: shadowNote(second, routes)}, nil
	}
	r, _ := routeInto(builtin[0], routes)
	return choice{}, fmt.Errorf("each of the built-in pod ranges %v collides with a route of the node, the first with %s dev %s: configure a free range: %w",
		builtin, r.dst, r.link, errdefs.ErrPrecondition)
}

// routeInto finds a route that takes packets for a part or all of p elsewhere.
func routeInto(p netip.Prefix, routes []route) (route, bool) {
	for _, r := range routes {
		if r.dst.Bits() >= p.Bits() && p.Overlaps(r.dst) {
			return r, true
		}
	}
	return route{}, false
}

// shadowNote tells of a wider route of which p takes a part away. The default
// route is no news.
func shadowNote(p netip.Prefix, routes []route) string {
	for _, r := range routes {
		if r.dst.Bits() > 0 && r.dst.Bits() < p.Bits() && r.dst.Overlaps(p) {
			return fmt.Sprintf("pod range %s hides a part of route %s dev %s from this node", p, r.dst, r.link)
		}
	}
	return ""
}
