package nat

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// String is the element as people read it: "8080/tcp to 10.0.0.2:80", with the
// node's address before the port where it is for one alone.
func (e Element) String() string {
	size := int(families[e.Is4].size)
	key, on := e.key, ""
	if e.bound() && len(key) > size {
		on, key = addrOf(key[:size])+" ", key[size:]
	}
	if len(key) < 8 || len(e.val) < size+4 {
		return fmt.Sprintf("%x to %x", e.key, e.val)
	}
	to := netip.AddrPortFrom(netip.Addr{}, port(e.val[size:]))
	if ip, ok := netip.AddrFromSlice([]byte(e.val[:size])); ok {
		to = netip.AddrPortFrom(ip, to.Port())
	}
	return fmt.Sprintf("%s%d/%s to %s", on, port(key[4:]), protocolName(key[0]), to)
}

func (e Element) bound() bool { return e.set == families[e.Is4].portsBound }

func port(s string) uint16 { return uint16(s[0])<<8 | uint16(s[1]) }

func addrOf(s string) string {
	ip, _ := netip.AddrFromSlice([]byte(s))
	return ip.String()
}

func protocolName(number byte) string {
	for name, n := range protocols {
		if n == number {
			return name
		}
	}
	return fmt.Sprint(number)
}

// Published reads the elements that the kernel has, less those that are on
// their way out. whole says whether the table is there with all of its rules.
func (n *Table) Published() (els []Element, whole bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	conn, err := nftables.New()
	if err != nil {
		return nil, false, fmt.Errorf("open nftables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, false, fmt.Errorf("list nftables tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == n.table }) {
		return nil, false, nil
	}
	sets, err := conn.GetSets(n.handle())
	if err != nil {
		return nil, false, fmt.Errorf("list the maps of nftables table inet %s: %w", n.table, err)
	}
	found := 0
	for _, s := range sets {
		is4, ours := familyOf(s.Name)
		if !ours {
			continue
		}
		found++
		list, err := conn.GetSetElements(s)
		if err != nil {
			return nil, false, fmt.Errorf("list map %s of nftables table inet %s: %w", s.Name, n.table, err)
		}
		for _, el := range list {
			e := Element{set: s.Name, Is4: is4, key: string(el.Key), val: string(el.Val)}
			if !slices.ContainsFunc(n.stale, func(old Element) bool { return old.set == e.set && old.key == e.key }) {
				els = append(els, e)
			}
		}
	}
	complete, err := n.complete(conn)
	return els, complete && found == 2*len(families), err
}

func familyOf(set string) (is4, ours bool) {
	for is4, f := range families {
		if set == f.ports || set == f.portsBound {
			return is4, true
		}
	}
	return false, false
}

// complete compares the chains and the number of their rules with those that
// replace makes.
func (n *Table) complete(conn *nftables.Conn) (bool, error) {
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("list the chains of nftables table inet %s: %w", n.table, err)
	}
	want := n.rulesIn()
	for _, c := range chains {
		count, ours := want[c.Name]
		if c.Table.Name != n.table || !ours {
			continue
		}
		rules, err := conn.GetRules(n.handle(), c)
		if err != nil {
			return false, fmt.Errorf("list the rules of chain %s: %w", c.Name, err)
		}
		if len(rules) >= count {
			delete(want, c.Name)
		}
	}
	return len(want) == 0, nil
}

// rulesIn is how many rules each chain has at least: those of the families,
// and in postrouting two for each range that this process knows of.
func (n *Table) rulesIn() map[string]int {
	return map[string]int{
		"guard": len(families), "prerouting": 2 * len(families), "output": 2*len(families) + 1,
		"postrouting": len(families) + 2*len(n.ranges),
	}
}
