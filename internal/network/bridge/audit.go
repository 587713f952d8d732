package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/bridge/nat"
	"fairlead.run/internal/pod"
)

var (
	_ pod.Keeper       = (*Driver)(nil)
	_ network.Releaser = (*Driver)(nil)
	_ network.Reviver  = (*Driver)(nil)
)

// Releasing says whether the pod was detached and its link has not gone yet.
func (d *Driver) Releasing(id pod.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.releasing[vethName(d.cfg.Bridge, id)]
	return ok
}

// ReleaseNow ends a release without waiting for the namespace.
func (d *Driver) ReleaseNow(ctx context.Context, id pod.ID) error { return d.releaseNow(ctx, id) }

// Held lists links, addresses and ports that are taken, and published ports.
func (d *Driver) Held(_ context.Context, records []*pod.Record) ([]pod.Held, error) {
	links, err := d.heldLinks(records)
	if err != nil {
		return nil, err
	}
	published, err := d.heldElements(records)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]pod.Held{}, links, d.unowned(), published), nil
}

// heldLinks lists the links on the bridge, and those of pods wherever they are.
// A link does not tell its pod, but every pod tells its link.
func (d *Driver) heldLinks(records []*pod.Record) (out []pod.Held, err error) {
	all, err := network.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	owners := map[string]pod.ID{}
	for _, e := range d.entries() {
		owners[vethName(d.cfg.Bridge, e.ID)] = e.ID
	}
	for _, r := range records {
		owners[vethName(d.cfg.Bridge, r.ID)] = r.ID
	}
	bridge := -1
	for _, l := range all {
		if l.Attrs().Name == d.cfg.Bridge {
			bridge = l.Attrs().Index
		}
	}
	for _, l := range all {
		a := l.Attrs()
		id, known := owners[a.Name]
		plugged := bridge >= 0 && a.MasterIndex == bridge && l.Type() == "veth" && strings.HasPrefix(a.Name, vethPrefix)
		if known && d.Releasing(id) || !known && (!plugged || d.releasingLink(a.Name)) {
			continue
		}
		h := pod.Held{Kind: pod.KindLink, Name: a.Name, Owner: string(id)}
		if known && !plugged {
			h.Fault = fmt.Sprintf("it is not on bridge %s", d.cfg.Bridge)
		}
		out = append(out, h)
	}
	return out, nil
}

func (d *Driver) releasingLink(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.releasing[name]
	return ok
}

// quietWait is what is waited for a moment in which no pod is being attached.
const quietWait = 200 * time.Millisecond

// quiet runs do while no pod is being attached. On a node where there is no
// such moment it gives up, rather than let those who come wait for one that is
// stuck.
func (d *Driver) quiet(do func()) bool {
	for end := time.Now().Add(quietWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if d.hostMu.TryLock() {
			defer d.hostMu.Unlock()
			do()
			return true
		}
	}
	return false
}

// unowned lists addresses and ports that are taken and are nobody's. While no
// pod is being attached, what is taken is in the ledger.
func (d *Driver) unowned() (out []pod.Held) {
	d.quiet(func() { out = d.unownedHeld() })
	return out
}

// unownedHeld is unowned for a caller that holds hostMu.
func (d *Driver) unownedHeld() (out []pod.Held) {
	taken, ids := map[netip.Addr]bool{}, map[pod.ID]bool{}
	for _, e := range d.entries() {
		ids[e.ID] = true
		for _, ip := range e.Result.IPs {
			taken[ip] = true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.releasing {
		for _, ip := range r.ips {
			taken[ip] = true
		}
	}
	for _, p := range d.pools {
		for _, ip := range p.Taken() {
			if !taken[ip] {
				out = append(out, pod.Held{Kind: pod.KindAddress, Name: ip.String()})
			}
		}
	}
	for name := range d.ports.Unowned(ids) {
		out = append(out, pod.Held{Kind: pod.KindPort, Name: name})
	}
	return out
}

// heldElements lists what the kernel has of published ports, and the table if
// all of it is there.
func (d *Driver) heldElements(records []*pod.Record) (out []pod.Held, err error) {
	els, whole, err := d.nat.Published()
	if err != nil {
		if d.natErr() != nil {
			return nil, nil // this kernel has no nftables, as Notes says
		}
		return nil, err
	}
	if whole {
		out = append(out, pod.Held{Kind: pod.KindTable, Name: d.tableName()})
	}
	owners := map[string]pod.ID{}
	for _, e := range d.entries() {
		for _, el := range nat.Elements(e.Request.Ports, e.Result.IPs) {
			owners[el.String()] = e.ID
		}
	}
	for _, r := range records {
		for _, el := range nat.Elements(r.Config.Ports, r.Sandbox.IPs) {
			owners[el.String()] = r.ID
		}
	}
	for _, el := range els {
		if id := owners[el.String()]; id == "" || !d.Releasing(id) {
			out = append(out, pod.Held{Kind: pod.KindElement, Name: el.String(), Owner: string(id)})
		}
	}
	return out, nil
}

func (d *Driver) natErr() error {
	d.hostMu.RLock()
	defer d.hostMu.RUnlock()
	if d.host == nil {
		return nil
	}
	return d.host.natErr
}

func (d *Driver) tableName() string { return "inet " + d.cfg.Table }

// Wants are the link and the published ports of a pod of this network.
func (d *Driver) Wants(r *pod.Record) []pod.Held {
	e, ok := d.ledger.Get(r.ID)
	if !ok || e.Driver != Name || r.State != pod.Running {
		return nil
	}
	owner := string(r.ID)
	out := []pod.Held{{Kind: pod.KindLink, Name: vethName(d.cfg.Bridge, r.ID), Owner: owner}}
	if d.natErr() != nil {
		return out
	}
	out = append(out, pod.Held{Kind: pod.KindTable, Name: d.tableName(), Owner: owner})
	for _, el := range nat.Elements(e.Request.Ports, e.Result.IPs) {
		out = append(out, pod.Held{Kind: pod.KindElement, Name: el.String(), Owner: owner})
	}
	return out
}

// Drop removes what no pod needs.
func (d *Driver) Drop(_ context.Context, h pod.Held) error {
	switch h.Kind {
	case pod.KindLink:
		return deleteLink(h.Name)
	case pod.KindAddress:
		return d.freeUnowned(h, func() {
			for _, p := range d.pools {
				if ip, err := netip.ParseAddr(h.Name); err == nil {
					p.Release(ip)
				}
			}
		})
	case pod.KindPort:
		return d.freeUnowned(h, func() { d.ports.Release(d.ports.Unowned(nil)[h.Name]) })
	case pod.KindElement:
		return d.rebuild()
	}
	return fmt.Errorf("remove %s %s: the bridge network has none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}

// freeUnowned frees an address or a port that still is nobody's.
func (d *Driver) freeUnowned(h pod.Held, free func()) error {
	done := d.quiet(func() {
		if !slices.Contains(d.unownedHeld(), h) {
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		free()
	})
	if !done {
		return fmt.Errorf("free %s %s: pods are being attached all the time; try again: %w", h.Kind, h.Name, errdefs.ErrUnavailable)
	}
	return nil
}

// rebuild makes the nftables table what the ledger says, or all of the host's
// part where this process has not made it yet.
func (d *Driver) rebuild() error {
	_, release, err := d.acquireHost()
	if err != nil {
		return err
	}
	defer release()
	return d.nat.Rebuild()
}

// Restore connects a pod again, or publishes its ports.
func (d *Driver) Restore(ctx context.Context, r *pod.Record, h pod.Held) error {
	switch h.Kind {
	case pod.KindTable, pod.KindElement:
		return d.rebuild()
	case pod.KindLink:
		return d.reconnect(ctx, r)
	case pod.KindAddress:
		return fmt.Errorf("give the pod %s again: a process in the pod may have taken it away on purpose; if not, remove the pod: %w", h.Name, errdefs.ErrPrecondition)
	}
	return fmt.Errorf("put back %s %s: the bridge network has none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}

// reconnect puts the pod's link back on the bridge, or makes another with the
// same addresses where it is gone.
func (d *Driver) reconnect(ctx context.Context, r *pod.Record) error {
	limits, err := network.BandwidthOf(r.Config.Annotations)
	if err != nil {
		return err
	}
	unlock, err := d.ledger.Lock(ctx, r.ID)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := d.ledger.Get(r.ID)
	if !ok || e.Driver != Name {
		return fmt.Errorf("connect pod %s again: it is not attached: %w", r.ID.Short(), errdefs.ErrPrecondition)
	}
	host, release, err := d.acquireHost()
	if err != nil {
		return err
	}
	defer release()
	l, err := d.nl.LinkByName(d.recordOf(e).Veth)
	switch {
	case isLinkNotFound(err):
		err = d.realise(host, e, limits)
	case err == nil && l.Attrs().MasterIndex != host.index:
		if err = d.nl.LinkSetMasterByIndex(l, host.index); err == nil {
			err = d.nl.LinkSetHairpin(l, true)
		}
	}
	if err != nil {
		return fmt.Errorf("connect pod %s again: %w", r.ID.Short(), err)
	}
	return nil
}

// Revive records a pod again whose link says that it is of this network.
func (d *Driver) Revive(ctx context.Context, r *pod.Record) (bool, error) {
	veth := vethName(d.cfg.Bridge, r.ID)
	if _, err := linkIndex(veth); err != nil || len(r.Sandbox.IPs) == 0 {
		return false, nil
	}
	unlock, err := d.ledger.Lock(ctx, r.ID)
	if err != nil {
		return false, err
	}
	defer unlock()
	// The host's part was not made with this pod in mind, should it be there.
	_, release, err := d.acquireHost()
	if err != nil {
		return false, err
	}
	defer release()
	req := network.RequestFor(r)
	res := network.Result{IPs: r.Sandbox.IPs, Interface: network.InterfaceName, MAC: hardwareAddr(r.Sandbox.IPs[0]).String()}
	rec := record{Veth: veth}
	d.mu.Lock()
	for _, ip := range res.IPs {
		for _, p := range d.pools {
			p.Claim(ip)
			if p.Prefix.Contains(ip) {
				rec.Gateways = append(rec.Gateways, p.Gateway())
				res.Gateways = append(res.Gateways, p.Gateway().Addr())
			}
		}
	}
	err = d.ports.Reserve(r.ID, podName(r.Config.Metadata), r.Config.Ports)
	d.mu.Unlock()
	if err != nil {
		return false, err
	}
	if len(rec.Gateways) != len(res.IPs) {
		return false, fmt.Errorf("record pod %s again: its addresses %v are of another range than this network's; remove the pod: %w", r.ID.Short(), res.IPs, errdefs.ErrPrecondition)
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return false, fmt.Errorf("record pod %s again: %w", r.ID.Short(), err)
	}
	e := network.Entry{ID: r.ID, Driver: Name, State: network.Adding, Request: req, Result: res, Data: data}
	if err := d.ledger.Record(e); err != nil {
		return false, err
	}
	return true, d.nat.Publish(r.ID, nat.Elements(req.Ports, res.IPs))
}
