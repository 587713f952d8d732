package bridge

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/bridge/claims"
	"fairlead.run/internal/pod"
)

// Check looks at the pod's link from both ends, and at the table of its ports. It
// makes nothing, also where this process has not made the host's part yet.
func (d *Driver) Check(ctx context.Context, id pod.ID) error {
	unlock, err := d.ledger.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := d.ledger.Get(id)
	if !ok || e.Driver != Name || d.isReleasing(e) {
		return fmt.Errorf("check network of pod %s: it is not attached: %w", id, errdefs.ErrNotFound)
	}
	if err := d.inspect(e); err != nil {
		return fmt.Errorf("check network of pod %s: %w", id, err)
	}
	if !claims.HasHostPort(e.Request.Ports) {
		return nil
	}
	there, err := d.nat.Exists()
	if err == nil && !there {
		err = fmt.Errorf("nftables table inet %s of its host ports is gone: %w", d.cfg.Table, errdefs.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("check network of pod %s: %w", id, err)
	}
	return nil
}

func (d *Driver) isReleasing(e network.Entry) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.releasing[d.recordOf(e).Veth]
	return ok
}

// inspect compares a link with its entry.
func (d *Driver) inspect(e network.Entry) error {
	veth := d.recordOf(e).Veth
	l, err := d.nl.LinkByName(veth)
	if isLinkNotFound(err) {
		return fmt.Errorf("link %s is gone: %w", veth, errdefs.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", veth, err)
	}
	br, err := d.nl.LinkByName(d.cfg.Bridge)
	if isLinkNotFound(err) {
		return fmt.Errorf("bridge %s is gone: %w", d.cfg.Bridge, errdefs.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", d.cfg.Bridge, err)
	}
	if l.Attrs().MasterIndex != br.Attrs().Index {
		return fmt.Errorf("link %s is not on bridge %s: %w", veth, d.cfg.Bridge, errdefs.ErrPrecondition)
	}
	have, err := network.AddressesInside(e.Request.NetNS)
	if err != nil {
		return err
	}
	for _, ip := range e.Result.IPs {
		if !slices.Contains(have, ip) {
			return fmt.Errorf("%s in the pod lacks address %s: %w", network.InterfaceName, ip, errdefs.ErrPrecondition)
		}
	}
	return nil
}

// Status says why pods cannot be attached now. Before the first pod it looks
// whether they could be, and changes nothing.
func (d *Driver) Status(context.Context) error {
	d.hostMu.RLock()
	h := d.host
	d.hostMu.RUnlock()
	if h == nil {
		if _, _, err := d.chooseRanges(); err != nil {
			return fmt.Errorf("bridge network %s: %w", d.cfg.Bridge, err)
		}
		return nil
	}
	l, err := d.nl.LinkByName(d.cfg.Bridge)
	if isLinkNotFound(err) {
		return fmt.Errorf("bridge %s was removed by somebody; the next pod makes it again: %w", d.cfg.Bridge, errdefs.ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", d.cfg.Bridge, err)
	}
	if l.Attrs().RawFlags&unix.IFF_UP == 0 {
		return fmt.Errorf("bridge %s is down: bring it up with ip link set %s up: %w", d.cfg.Bridge, d.cfg.Bridge, errdefs.ErrUnavailable)
	}
	return nil
}
