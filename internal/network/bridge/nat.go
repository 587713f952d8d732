package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// nat owns the nftables table. Rules are static; a pod's host ports are
// elements of maps. Adding an element takes some 40 us, removing one waits for
// the kernel's grace period, some 12 ms, and so is left to flush.
type nat struct {
	bridge string
	table  string

	mu     sync.Mutex
	ranges []netip.Prefix
	active map[pod.ID][]element
	stale  []element // still in the kernel, of pods that were detached
	broken bool      // the last rebuild failed: there is nothing to take out
}

// element is one entry of one of the maps.
type element struct {
	set      string
	is4      bool
	key, val string // as the kernel wants them
	port     uint16
	udp      bool
}

func newNAT(bridge, table string) *nat {
	return &nat{bridge: bridge, table: table, active: map[pod.ID][]element{}}
}

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// elements are what publishes the ports of a pod that has these addresses.
func elements(ports []pod.PortMapping, ips []netip.Addr) []element {
	var out []element
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		on := hostAddr(p)
		for _, ip := range ips {
			if on.IsValid() && on.Is4() != ip.Is4() {
				continue
			}
			f := families[ip.Is4()]
			e := element{set: f.ports, is4: ip.Is4(), port: p.HostPort, udp: p.Protocol == "udp"}
			key := word(protocols[p.Protocol], 0) + word(byte(p.HostPort>>8), byte(p.HostPort))
			if on.IsValid() && !on.IsUnspecified() {
				e.set, key = f.portsBound, string(on.AsSlice())+key
			}
			e.key = key
			e.val = string(ip.AsSlice()) + word(byte(p.ContainerPort>>8), byte(p.ContainerPort))
			out = append(out, e)
		}
	}
	return out
}

// word is a field of a concatenation: padded to four bytes.
func word(a, b byte) string { return string([]byte{a, b, 0, 0}) }

// setRanges says which sources are masqueraded, from the next rebuild on.
func (n *nat) setRanges(ranges []netip.Prefix) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ranges = ranges
}

// note remembers the ports of a pod without telling the kernel; rebuild will.
func (n *nat) note(id pod.ID, els []element) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(els) > 0 {
		n.active[id] = els
	}
}

// publish adds the ports of a pod.
func (n *nat) publish(id pod.ID, els []element) error {
	if len(els) == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.active[id] = els
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	// A port that changes hands leaves and comes back in one transaction.
	clash := slices.ContainsFunc(n.stale, func(s element) bool {
		return slices.ContainsFunc(els, func(e element) bool { return e.set == s.set && e.key == s.key })
	})
	if clash {
		err = n.edit(n.stale, conn.SetDeleteElements)
	}
	if err == nil {
		err = n.edit(els, conn.SetAddElements)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil { // somebody else changed the table: make it anew
		if err := n.rebuildLocked(); err != nil {
			return fmt.Errorf("publish host ports: %w", err)
		}
		return nil
	}
	if clash {
		n.stale = nil
	}
	return nil
}

// withdraw forgets the ports of a pod; flush takes them out of the kernel.
func (n *nat) withdraw(id pod.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stale = append(n.stale, n.active[id]...)
	delete(n.active, id)
}

// flush removes withdrawn ports and returns them.
func (n *nat) flush() ([]element, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	gone := n.stale
	if len(gone) == 0 || n.broken {
		n.stale = nil
		return nil, nil
	}
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	err = n.edit(gone, conn.SetDeleteElements)
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		if err := n.rebuildLocked(); err != nil {
			return nil, fmt.Errorf("withdraw host ports: %w", err)
		}
	}
	n.stale = nil
	return gone, nil
}

// edit adds elements to, or deletes them from, the maps they belong to.
func (n *nat) edit(els []element, do func(*nftables.Set, []nftables.SetElement) error) error {
	bySet := map[string][]nftables.SetElement{}
	sets := map[string]*nftables.Set{}
	for _, e := range els {
		f := families[e.is4]
		if sets[e.set] == nil {
			sets[e.set] = f.portsMap(n.handle())
			if e.set == f.portsBound {
				sets[e.set] = f.boundMap(n.handle())
			}
		}
		bySet[e.set] = append(bySet[e.set], nftables.SetElement{Key: []byte(e.key), Val: []byte(e.val)})
	}
	for name, set := range sets {
		if err := do(set, bySet[name]); err != nil {
			return err
		}
	}
	return nil
}

func (n *nat) handle() *nftables.Table {
	return &nftables.Table{Name: n.table, Family: nftables.TableFamilyINet}
}

// rebuild replaces the whole table by what it should be, in one transaction.
func (n *nat) rebuild() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rebuildLocked()
}

func (n *nat) rebuildLocked() (err error) {
	defer func() { n.broken = err != nil }()
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	t := conn.AddTable(n.handle()) // so that the deletion finds one
	conn.DelTable(t)
	t = conn.AddTable(n.handle())
	// A pod on the bridge must not reach what listens on the node's loopback
	// addresses only, though route_localnet is on.
	guard := conn.AddChain(baseChain(t, "guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw))
	pre := conn.AddChain(baseChain(t, "prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest))
	out := conn.AddChain(baseChain(t, "output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest))
	post := conn.AddChain(baseChain(t, "postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource))
	rule := func(c *nftables.Chain, parts ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: concat(parts...)})
	}
	drop := []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	masquerade := []expr.Any{&expr.Masq{}}
	for _, is4 := range []bool{true, false} {
		f := families[is4]
		ports, bound := f.portsMap(t), f.boundMap(t)
		if err := errors.Join(conn.AddSet(ports, nil), conn.AddSet(bound, nil)); err != nil {
			return fmt.Errorf("describe host port maps: %w", err)
		}
		rule(guard, link(expr.MetaKeyIIFNAME, expr.CmpOpEq, n.bridge), f.is(), f.within(f.dst, f.loopback), drop)
		for _, c := range []*nftables.Chain{pre, out} {
			rule(c, f.dnat(bound, f.boundKey()))
			rule(c, f.dnat(ports, portKeyExprs()))
		}
		// The node's loopback address means nothing to a pod.
		rule(post, link(expr.MetaKeyOIFNAME, expr.CmpOpEq, n.bridge), f.is(), f.within(f.src, f.loopback), masquerade)
	}
	for _, r := range n.ranges {
		f := families[r.Addr().Is4()]
		rule(post, f.is(), f.within(f.src, r), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, n.bridge), masquerade)
		// From pod to pod by a host port: the answer has to come back this way.
		rule(post, f.is(), f.within(f.src, r), link(expr.MetaKeyOIFNAME, expr.CmpOpEq, n.bridge), translated(), masquerade)
	}
	for _, els := range n.active {
		if err := n.edit(els, conn.SetAddElements); err != nil {
			return fmt.Errorf("describe host ports: %w", err)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("create nftables table inet %s: %w", n.table, err)
	}
	n.stale = nil
	return nil
}

func baseChain(t *nftables.Table, name string, typ nftables.ChainType, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
	return &nftables.Chain{Table: t, Name: name, Type: typ, Hooknum: hook, Priority: prio}
}

// exists says whether the table is there.
func (n *nat) exists() (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("list nftables tables: %w", err)
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == n.table }), nil
}

// remove deletes the table, if there is one.
func (n *nat) remove() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stale = nil
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	conn.DelTable(conn.AddTable(n.handle()))
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("delete nftables table inet %s: %w", n.table, err)
	}
	return nil
}
