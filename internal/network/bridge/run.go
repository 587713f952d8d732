package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
)

var bridgeRemoved = failpoint.Register("bridge.removed")

// Run frees the addresses of detached pods when the kernel says that their
// links are gone, and repairs what others do to the bridge and the table, such
// as nft flush ruleset.
func (d *Driver) Run(ctx context.Context) error {
	links, err := openWatch(unix.NETLINK_ROUTE, groupLink, linkGone)
	if err != nil {
		return fmt.Errorf("watch bridge network: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	events := make(chan event, 64)
	g.Go(func() error { return links.run(ctx, events) })
	tables, err := openWatch(unix.NETLINK_NETFILTER, groupNFTables, tableGone)
	if err != nil { // a kernel without nftables, which Notes tells of
		d.cfg.Log.Warn("cannot watch nftables", "error", err)
	} else {
		g.Go(func() error { return tables.run(ctx, events) })
	}
	g.Go(func() error { return d.serve(ctx, events) })
	return g.Wait()
}

func (d *Driver) serve(ctx context.Context, events <-chan event) error {
	timer := time.NewTimer(0) // first, what happened before Run
	defer timer.Stop()
	for {
		gone := ""
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-d.wake:
		case e := <-events:
			if !d.concerns(e) {
				continue
			}
			gone = e.link
			if e.lost {
				d.lookAgain()
			}
			if err := d.repair(e); err != nil {
				d.cfg.Log.Error("cannot repair the bridge network", "bridge", d.cfg.Bridge, "error", err)
			}
		}
		next, err := d.settle(ctx, time.Now(), gone)
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Error("cannot release pod addresses", "bridge", d.cfg.Bridge, "error", err)
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// concerns says whether an event has to do with this network. Most are about
// other links, and of those with a pod's link only released ones matter.
func (d *Driver) concerns(e event) bool {
	if e.lost || e.link == d.cfg.Bridge || e.table == d.cfg.Table {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.releasing[e.link]
	return ok
}

// lookAgain makes settle look at every link, because events were lost.
func (d *Driver) lookAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for veth, r := range d.releasing {
		r.seen = false
		d.releasing[veth] = r
	}
}

// repair makes the bridge or the table again if somebody removed them while
// pods need them.
func (d *Driver) repair(e event) error {
	d.hostMu.Lock()
	defer d.hostMu.Unlock()
	if d.host == nil || (e.link != d.cfg.Bridge && e.table != d.cfg.Table && !e.lost) {
		return nil
	}
	if _, err := d.nl.LinkByName(d.cfg.Bridge); isLinkNotFound(err) {
		return d.remake()
	}
	if d.host.natErr != nil {
		return nil
	}
	there, err := d.nat.Exists()
	if err != nil || there {
		return err // our own rebuild deletes and creates it in one step
	}
	d.cfg.Log.Warn("nftables table was removed by somebody: making it again", "table", d.cfg.Table)
	return d.nat.Rebuild()
}

// remake builds the host's part anew, or leaves that to the next pod.
// d.hostMu is held.
func (d *Driver) remake() error {
	d.host = nil
	if len(d.entries()) == 0 {
		return nil
	}
	d.cfg.Log.Warn("bridge was removed by somebody: making it again", "bridge", d.cfg.Bridge)
	h, err := d.makeHost()
	if err != nil {
		return err
	}
	d.host = h
	return nil
}

// Reconcile releases the pods of an earlier process that nobody owns. Their
// namespaces are not ours to drop, so their links are taken out at once.
func (d *Driver) Reconcile(ctx context.Context, live func(pod.ID) bool) error {
	errs := []error{d.forgetBoots()}
	for _, e := range d.entries() {
		if live(e.ID) || !d.ledger.Inherited(e.ID) {
			continue
		}
		if err := d.Detach(ctx, e.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, d.releaseNow(ctx, e.ID))
	}
	return errors.Join(errs...)
}

// releaseNow ends a release without waiting for the namespace.
func (d *Driver) releaseNow(ctx context.Context, id pod.ID) error {
	veth := vethName(d.cfg.Bridge, id)
	d.mu.Lock()
	r, ok := d.releasing[veth]
	d.mu.Unlock()
	if !ok {
		return nil
	}
	_, err := d.settleOne(ctx, veth, r.force)
	return err
}

// Purge removes the bridge and the table. While pods are attached, it does
// nothing and wraps errdefs.ErrPrecondition.
func (d *Driver) Purge(ctx context.Context) error {
	d.mu.Lock()
	waiting := make([]pod.ID, 0, len(d.releasing))
	for _, r := range d.releasing {
		waiting = append(waiting, r.id)
	}
	d.mu.Unlock()
	for _, id := range waiting {
		if err := d.releaseNow(ctx, id); err != nil {
			return fmt.Errorf("remove bridge network %s: %w", d.cfg.Bridge, err)
		}
	}
	d.hostMu.Lock()
	defer d.hostMu.Unlock()
	if left := d.entries(); len(left) > 0 {
		return fmt.Errorf("remove bridge network %s: %d pods are attached, the first is %s (%s): %w", d.cfg.Bridge, len(left),
			podName(left[0].Request.Metadata), left[0].ID.Short(), errdefs.ErrPrecondition)
	}
	d.host = nil
	d.mu.Lock()
	d.pools = nil
	d.mu.Unlock()
	err := errors.Join(deleteLink(d.cfg.Bridge), failpoint.Hit(bridgeRemoved), d.nat.Remove(), d.nat.Expel())
	if err != nil {
		return fmt.Errorf("remove bridge network %s: %w", d.cfg.Bridge, err)
	}
	return nil
}
