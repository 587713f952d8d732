package nat

import (
	"bytes"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Admit lets the pod network through a packet filter that drops forwarded
// packets by default, as Docker's and many firewalls' do; an accept in a table
// of our own would not outweigh that. Only iptables' own filter tables are
// changed, as CNI plugins change them; of others it tells.
func (n *Table) Admit() (notes []string) {
	conn, err := nftables.New()
	if err != nil {
		return nil // the caller has just used nftables; nothing to add
	}
	chains, err := conn.ListChains()
	if err != nil {
		return []string{fmt.Sprintf("cannot see whether a packet filter stops the pod network: %v", err)}
	}
	for _, c := range chains {
		if !dropsForwarded(c) {
			continue
		}
		if !isIptables(c) {
			notes = append(notes, fmt.Sprintf("nftables chain %s %s drops forwarded packets by default: pods reach nothing beyond this node unless it accepts interface %s", c.Table.Name, c.Name, n.bridge))
			continue
		}
		if err := n.admitTo(conn, c); err != nil {
			notes = append(notes, fmt.Sprintf("cannot let the pod network through iptables chain %s: %v", c.Name, err))
			continue
		}
		notes = append(notes, fmt.Sprintf("iptables chain %s drops forwarded packets by default: added rules that accept interface %s", c.Name, n.bridge))
	}
	return notes
}

func dropsForwarded(c *nftables.Chain) bool {
	return c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward &&
		c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
}

func isIptables(c *nftables.Chain) bool {
	return c.Table.Name == "filter" && c.Name == "FORWARD" &&
		(c.Table.Family == nftables.TableFamilyIPv4 || c.Table.Family == nftables.TableFamilyIPv6)
}

// mark is how rules of ours are found again in others' chains.
func (n *Table) mark() []byte { return []byte("fairlead:" + n.table) }

func (n *Table) admitTo(conn *nftables.Conn, c *nftables.Chain) error {
	ours, err := n.ourRules(conn, c)
	if err != nil || len(ours) > 0 {
		return err
	}
	for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
		conn.InsertRule(&nftables.Rule{
			Table: c.Table, Chain: c, UserData: n.mark(),
			Exprs: concat(link(key, expr.CmpOpEq, n.bridge), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}}),
		})
	}
	return conn.Flush()
}

func (n *Table) ourRules(conn *nftables.Conn, c *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := conn.GetRules(c.Table, c)
	if err != nil {
		return nil, fmt.Errorf("list rules of chain %s: %w", c.Name, err)
	}
	var ours []*nftables.Rule
	for _, r := range rules {
		if bytes.Equal(r.UserData, n.mark()) {
			ours = append(ours, r)
		}
	}
	return ours, nil
}

// Expel takes the rules of Admit back.
func (n *Table) Expel() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range chains {
		if !isIptables(c) {
			continue
		}
		ours, err := n.ourRules(conn, c)
		if err != nil {
			return err
		}
		for _, r := range ours {
			if err := conn.DelRule(r); err != nil {
				return fmt.Errorf("delete rule of chain %s: %w", c.Name, err)
			}
		}
	}
	return conn.Flush()
}
