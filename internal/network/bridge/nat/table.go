package nat

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

// Table owns the nftables table. Rules are static; a pod's host ports are
// elements of maps. Adding an Element takes some 40 us, removing one waits for
// the kernel's grace period, some 12 ms, and so is left to Flush.
type Table struct {
	bridge string
	table  string

	mu     sync.Mutex
	ranges []netip.Prefix
	active map[pod.ID][]Element
	stale  []Element // still in the kernel, of pods that were detached
	broken bool      // the last Rebuild failed: there is nothing to take out
}

// Element is one entry of one of the maps.
type Element struct {
	Port uint16
	UDP  bool
	Is4  bool

	set      string
	key, val string // as the kernel wants them
}

// New makes the table of that name, for the pods behind the bridge. It touches
// nothing in the kernel.
func New(bridge, table string) *Table {
	return &Table{bridge: bridge, table: table, active: map[pod.ID][]Element{}}
}

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// Elements are what publishes the ports of a pod that has these addresses.
func Elements(ports []pod.PortMapping, ips []netip.Addr) []Element {
	var out []Element
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		on := HostAddr(p)
		for _, ip := range ips {
			if on.IsValid() && on.Is4() != ip.Is4() {
				continue
			}
			f := families[ip.Is4()]
			e := Element{set: f.ports, Is4: ip.Is4(), Port: p.HostPort, UDP: p.Protocol == "udp"}
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

// HostAddr is the node address that a mapping is for; the zero Addr means all.
// The mapping has been validated before.
func HostAddr(p pod.PortMapping) netip.Addr {
	addr, _ := netip.ParseAddr(p.HostIP)
	return addr.Unmap()
}

// word is a field of a concatenation: padded to four bytes.
func word(a, b byte) string { return string([]byte{a, b, 0, 0}) }

// SetRanges says which sources are masqueraded, from the next Rebuild on.
func (n *Table) SetRanges(ranges []netip.Prefix) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ranges = ranges
}

// Note remembers the ports of a pod without telling the kernel; Rebuild will.
func (n *Table) Note(id pod.ID, els []Element) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(els) > 0 {
		n.active[id] = els
	}
}

// Publish adds the ports of a pod.
func (n *Table) Publish(id pod.ID, els []Element) error {
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
	clash := slices.ContainsFunc(n.stale, func(s Element) bool {
		return slices.ContainsFunc(els, func(e Element) bool { return e.set == s.set && e.key == s.key })
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
		if err := n.replace(); err != nil {
			return fmt.Errorf("publish host ports: %w", err)
		}
		return nil
	}
	if clash {
		n.stale = nil
	}
	return nil
}

// Withdraw forgets the ports of a pod; flush takes them out of the kernel.
func (n *Table) Withdraw(id pod.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stale = append(n.stale, n.active[id]...)
	delete(n.active, id)
}

// Flush removes withdrawn ports and returns them.
func (n *Table) Flush() ([]Element, error) {
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
		if err := n.replace(); err != nil {
			return nil, fmt.Errorf("withdraw host ports: %w", err)
		}
	}
	n.stale = nil
	return gone, nil
}

// edit adds elements to, or deletes them from, the maps they belong to.
func (n *Table) edit(els []Element, do func(*nftables.Set, []nftables.SetElement) error) error {
	bySet := map[string][]nftables.SetElement{}
	sets := map[string]*nftables.Set{}
	for _, e := range els {
		f := families[e.Is4]
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

func (n *Table) handle() *nftables.Table {
	return &nftables.Table{Name: n.table, Family: nftables.TableFamilyINet}
}

// Rebuild replaces the whole table by what it should be, in one transaction.
func (n *Table) Rebuild() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.replace()
}

func (n *Table) replace() (err error) {
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
	guard := conn.AddChain(&nftables.Chain{Table: t, Name: "guard", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	pre := conn.AddChain(&nftables.Chain{Table: t, Name: "prerouting", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	out := conn.AddChain(&nftables.Chain{Table: t, Name: "output", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	post := conn.AddChain(&nftables.Chain{Table: t, Name: "postrouting", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
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
		if !is4 {
			// The kernel cannot carry ::1 to another interface. Refused at once,
			// a client of localhost goes on to 127.0.0.1.
			rule(out, f.is(), f.within(f.dst, f.loopback), []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}})
		}
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

// Exists says whether the table is there.
func (n *Table) Exists() (bool, error) {
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

// Remove deletes the table, if there is one.
func (n *Table) Remove() error {
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
