package criu

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// The names that criu gives to what it blocks traffic with: a table of its own, or
// a chain that iptables makes in the table "filter".
const (
	lockTable = "CRIU-"
	lockChain = "CRIU"
)

// Unlock takes back what a criu that was killed has put into a network namespace
// to block its traffic. Usually there is nothing.
func Unlock(netns string) error {
	ns, err := os.Open(netns)
	if err != nil {
		return fmt.Errorf("unblock the pod's network: %w", err)
	}
	defer ns.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err == nil {
		err = unlock(conn)
	}
	if err != nil {
		return fmt.Errorf("unblock the pod's network, of which criu's rules may be left: %w", err)
	}
	return nil
}

func unlock(conn *nftables.Conn) error {
	tables, err := conn.ListTables()
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range tables {
		switch {
		case strings.HasPrefix(t.Name, lockTable):
			conn.DelTable(t)
			failed = append(failed, conn.Flush())
		case t.Name == "filter":
			failed = append(failed, removeChain(conn, t))
		}
	}
	return errors.Join(failed...)
}

// removeChain deletes criu's chain from a table, and the rules that lead there.
func removeChain(conn *nftables.Conn, t *nftables.Table) error {
	chains, err := conn.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return err
	}
	var mine *nftables.Chain
	for _, c := range chains {
		if c.Table.Name == t.Name && c.Name == lockChain {
			mine = c
		}
	}
	if mine == nil {
		return nil
	}
	for _, c := range chains {
		if c.Table.Name != t.Name || c == mine {
			continue
		}
		if err := removeJumps(conn, t, c); err != nil {
			return err
		}
	}
	conn.FlushChain(mine)
	conn.DelChain(mine)
	return conn.Flush()
}

func removeJumps(conn *nftables.Conn, t *nftables.Table, from *nftables.Chain) error {
	rules, err := conn.GetRules(t, from)
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range rules {
		if slices.ContainsFunc(r.Exprs, jumps) {
			failed = append(failed, conn.DelRule(r))
		}
	}
	return errors.Join(failed...)
}

func jumps(e expr.Any) bool {
	v, ok := e.(*expr.Verdict)
	return ok && v.Chain == lockChain
}
