package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/bridge/nat"
	"fairlead.run/internal/pod"
)

var (
	withdrawn = failpoint.Register("bridge.withdrawn")
	linkTaken = failpoint.Register("bridge.link-gone")
	flushed   = failpoint.Register("bridge.flushed")
)

// Detach withdraws the pod's ports and waits for nothing: the caller drops the
// namespace, the kernel removes the link with it, and Run then frees the
// addresses. Until they are free, the pod's entry stays in the ledger.
func (d *Driver) Detach(ctx context.Context, id pod.ID) error {
	unlock, err := d.ledger.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := d.ledger.Get(id)
	switch {
	case !ok:
		return nil
	case e.State == network.Damaged: // its owner forgets the entry
		return deleteLink(vethName(d.cfg.Bridge, id))
	case e.Driver != Name:
		return fmt.Errorf("detach pod %s: driver %q has attached it: %w", id, e.Driver, errdefs.ErrPrecondition)
	}
	if !d.ledger.ThisBoot(e) {
		return d.ledger.Forget(id)
	}
	_, release, err := d.acquireHost()
	if err != nil { // nothing is shared with other pods then
		return d.detachAlone(e)
	}
	defer release()
	d.beginRelease(e)
	return failpoint.Hit(withdrawn)
}

func (d *Driver) detachAlone(e network.Entry) error {
	if err := deleteLink(d.recordOf(e).Veth); err != nil {
		return fmt.Errorf("detach pod %s: %w", e.ID, err)
	}
	return d.ledger.Forget(e.ID)
}

func (d *Driver) beginRelease(e network.Entry) {
	veth := d.recordOf(e).Veth
	d.ledger.Adopt(e.ID)
	d.nat.Withdraw(e.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ports.Release(e.ID)
	delete(d.verified, e.ID)
	if _, ok := d.releasing[veth]; !ok {
		d.releasing[veth] = release{id: e.ID, ips: e.Result.IPs, force: time.Now().Add(d.cfg.ReleaseGrace)}
	}
	d.poke()
}

// finish frees what a pod had whose link is gone. The pod's lock is held.
func (d *Driver) finish(veth string, r release) error {
	// An address may go to another pod only when no port leads to it any more.
	gone, err := d.nat.Flush()
	if err != nil {
		return err
	}
	d.forgetFlows(gone)
	if err := failpoint.Hit(flushed); err != nil {
		return err
	}
	if err := d.ledger.Forget(r.id); err != nil {
		return err
	}
	d.giveBack(r.ips)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.releasing, veth)
	return nil
}

// settle finishes the releases whose links are gone and forces those that are
// due. gone names a link that is known to be gone. It returns when to come
// back; zero means when something happens.
func (d *Driver) settle(ctx context.Context, now time.Time, gone string) (next time.Time, err error) {
	var errs []error
	withdrawn, err := d.nat.Flush()
	errs = append(errs, err)
	d.forgetFlows(withdrawn)
	d.mu.Lock()
	waiting := maps.Clone(d.releasing)
	d.mu.Unlock()
	for veth, r := range waiting {
		done := false
		if veth == gone || !r.seen || !now.Before(r.force) {
			if done, err = d.settleOne(ctx, veth, now); err != nil {
				errs = append(errs, err)
				r.force = now.Add(d.cfg.ReleaseGrace) // again, later
			}
		}
		if !done && (next.IsZero() || r.force.Before(next)) {
			next = r.force
		}
	}
	return next, errors.Join(errs...)
}

// settleOne finishes one release if its link is gone, or takes the link away
// if that is due.
func (d *Driver) settleOne(ctx context.Context, veth string, now time.Time) (done bool, err error) {
	d.mu.Lock()
	r, ok := d.releasing[veth]
	d.mu.Unlock()
	if !ok {
		return true, nil
	}
	unlock, err := d.ledger.Lock(ctx, r.id)
	if err != nil {
		return false, err
	}
	defer unlock()
	// A socket of its own: pods that are being attached do not wait for this.
	_, err = netlink.LinkByName(veth)
	switch {
	case err == nil && now.Before(r.force):
		d.mu.Lock()
		defer d.mu.Unlock()
		if r, ok = d.releasing[veth]; ok {
			r.seen = true
			d.releasing[veth] = r
		}
		return !ok, nil
	case err != nil && !isLinkNotFound(err):
		return false, fmt.Errorf("find link %s: %w", veth, err)
	}
	d.mu.Lock()
	_, ok = d.releasing[veth]
	d.mu.Unlock()
	if !ok {
		return true, nil
	}
	if err := deleteLink(veth); err != nil {
		return false, err
	}
	if err := failpoint.Hit(linkTaken); err != nil {
		return false, err
	}
	if err := d.finish(veth, r); err != nil {
		return false, err
	}
	return true, nil
}

// forgetFlows removes the node's memory of UDP flows to host ports. A client
// that keeps its port would otherwise go on to reach where the port led before.
// TCP needs nothing of the kind: new connections are looked up anew.
func (d *Driver) forgetFlows(els []nat.Element) {
	if !hasUDP(els) {
		return
	}
	for _, is4 := range []bool{true, false} {
		filter := &udpPorts{}
		for _, e := range els {
			if e.UDP && e.Is4 == is4 {
				filter.ports = append(filter.ports, e.Port)
			}
		}
		if len(filter.ports) == 0 {
			continue
		}
		fam := netlink.InetFamily(unix.AF_INET6)
		if is4 {
			fam = unix.AF_INET
		}
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, fam, filter); err != nil {
			d.cfg.Log.Warn("cannot forget UDP flows of host ports", "ports", filter.ports, "error", err)
		}
	}
}

func hasUDP(els []nat.Element) bool {
	return slices.ContainsFunc(els, func(e nat.Element) bool { return e.UDP })
}

// udpPorts matches flows that were opened to one of the ports.
type udpPorts struct{ ports []uint16 }

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f *udpPorts) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	return flow.Forward.Protocol == unix.IPPROTO_UDP && slices.Contains(f.ports, flow.Forward.DstPort)
}
