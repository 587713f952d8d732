package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/bridge/claims"
	"fairlead.run/internal/network/bridge/nat"
	"fairlead.run/internal/pod"
)

var (
	connected = failpoint.Register("bridge.connected")
	published = failpoint.Register("bridge.published")
)

// Attach connects the pod: reserve, record, connect, publish ports.
func (d *Driver) Attach(ctx context.Context, req network.Request) (network.Result, error) {
	if err := req.Validate(); err != nil {
		return network.Result{}, err
	}
	limits, err := network.BandwidthOf(req.Annotations)
	if err != nil {
		return network.Result{}, fmt.Errorf("attach pod %s: %w", req.ID, err)
	}
	unlock, err := d.ledger.Lock(ctx, req.ID)
	if err != nil {
		return network.Result{}, err
	}
	defer unlock()
	h, releaseHost, err := d.acquireHost()
	if err != nil {
		return network.Result{}, fmt.Errorf("attach pod %s: %w", req.ID, err)
	}
	defer releaseHost()
	old, done, err := d.earlier(req)
	if err != nil || done {
		return old.Result, err
	}
	e, err := d.reserve(h, req, old)
	if err != nil {
		return network.Result{}, fmt.Errorf("attach pod %s: %w", req.ID, err)
	}
	if err := d.realise(h, e, limits); err != nil {
		return network.Result{}, errors.Join(fmt.Errorf("attach pod %s: %w", req.ID, err), d.takeBack(e))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.verified[req.ID] = struct{}{}
	return e.Result, nil
}

// earlier looks at what the ledger has for the pod. done means that it is
// attached as asked. Otherwise nothing of an interrupted attempt is left but
// its reservation, which is used again.
func (d *Driver) earlier(req network.Request) (e network.Entry, done bool, err error) {
	e, ok := d.ledger.Get(req.ID)
	if !ok || e.State == network.Damaged {
		return network.Entry{}, false, nil
	}
	if e.Driver != Name {
		return network.Entry{}, false, fmt.Errorf("attach pod %s: driver %q has attached it: %w", req.ID, e.Driver, errdefs.ErrPrecondition)
	}
	veth := d.recordOf(e).Veth
	d.mu.Lock()
	r, releasing := d.releasing[veth]
	_, verified := d.verified[req.ID]
	d.mu.Unlock()
	if releasing {
		if err := deleteLink(veth); err != nil {
			return network.Entry{}, false, err
		}
		return network.Entry{}, false, d.finish(veth, r)
	}
	if e.Request.NetNS == req.NetNS && (verified || d.inspect(e) == nil) {
		d.ledger.Adopt(req.ID)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.verified[req.ID] = struct{}{}
		return e, true, nil
	}
	return e, false, deleteLink(veth)
}

// reserve takes addresses and ports for the pod and writes them down.
func (d *Driver) reserve(h *host, req network.Request, old network.Entry) (e network.Entry, err error) {
	if h.natErr != nil && claims.HasHostPort(req.Ports) {
		return e, fmt.Errorf("hostPort needs nftables, which does not work on this node: %w: %w", h.natErr, errdefs.ErrUnimplemented)
	}
	if err := d.checkFamilies(req.Ports); err != nil {
		return e, err
	}
	d.mu.Lock()
	err = d.ports.Reserve(req.ID, podName(req.Metadata), req.Ports)
	d.mu.Unlock()
	if err != nil {
		return e, err
	}
	undo := func() { d.mu.Lock(); d.ports.Release(req.ID); d.mu.Unlock() }
	if err := claims.ProbePorts(req.Ports); err != nil {
		undo()
		return e, err
	}
	res := old.Result
	if len(res.IPs) == 0 {
		if res, err = d.takeAddresses(); err != nil {
			undo()
			return e, err
		}
	}
	rec := record{Veth: vethName(d.cfg.Bridge, req.ID), Gateways: d.recordOf(old).Gateways}
	if len(rec.Gateways) == 0 {
		rec.Gateways = d.poolGateways()
	}
	data, err := json.Marshal(rec)
	if err == nil {
		e = network.Entry{ID: req.ID, Driver: Name, State: network.Adding, Created: old.Created, Request: req, Result: res, Data: data}
		err = d.ledger.Record(e)
	}
	if err != nil {
		undo()
		d.giveBack(res.IPs)
	}
	return e, err
}

// checkFamilies refuses a host address of a family that pods do not have.
func (d *Driver) checkFamilies(ports []pod.PortMapping) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range ports {
		if on := nat.HostAddr(p); p.HostPort != 0 && on.IsValid() && on.Is6() && len(d.pools) < 2 {
			return fmt.Errorf("host port %s: pods of this node have no IPv6 addresses: %w", claims.DescribePort(p), errdefs.ErrUnimplemented)
		}
	}
	return nil
}

func (d *Driver) takeAddresses() (network.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	res := network.Result{Interface: network.InterfaceName}
	for _, p := range d.pools {
		a, err := p.Take()
		if err != nil {
			for i, taken := range res.IPs {
				d.pools[i].Release(taken)
			}
			return network.Result{}, err
		}
		res.IPs = append(res.IPs, a)
		res.Gateways = append(res.Gateways, p.Gateway().Addr())
	}
	res.MAC = hardwareAddr(res.IPs[0]).String()
	return res, nil
}

func (d *Driver) poolGateways() []netip.Prefix {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []netip.Prefix
	for _, p := range d.pools {
		out = append(out, p.Gateway())
	}
	return out
}

// giveBack frees addresses. One that an entry of the ledger still has stays
// taken: a damaged or copied entry must not free what a pod uses.
func (d *Driver) giveBack(ips []netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ip := range ips {
		if d.ledger.Holds(ip) {
			continue
		}
		for _, p := range d.pools {
			p.Release(ip)
		}
	}
}

// realise makes what the entry says.
func (d *Driver) realise(h *host, e network.Entry, limits network.Bandwidth) error {
	rec := d.recordOf(e)
	w := &wire{veth: rec.Veth, netns: e.Request.NetNS, master: h.index, mtu: h.mtu, limits: limits}
	for i, ip := range e.Result.IPs {
		g := rec.Gateways[i]
		w.addrs = append(w.addrs, wireAddr{addr: netip.PrefixFrom(ip, g.Bits()), gateway: g.Addr()})
	}
	if err := w.connect(d.nl); err != nil {
		return err
	}
	if err := failpoint.Hit(connected); err != nil {
		return err
	}
	els := nat.Elements(e.Request.Ports, e.Result.IPs)
	if err := d.nat.Publish(e.ID, els); err != nil {
		return err
	}
	if hasUDP(els) {
		d.forgetFlows(els)
	}
	return failpoint.Hit(published)
}

// takeBack undoes realise and reserve. If the link cannot be removed, the entry
// stays for Detach.
func (d *Driver) takeBack(e network.Entry) error {
	d.mu.Lock()
	d.ports.Release(e.ID)
	d.mu.Unlock()
	d.nat.Withdraw(e.ID)
	d.poke()
	if err := deleteLink(d.recordOf(e).Veth); err != nil {
		return err
	}
	if err := d.ledger.Forget(e.ID); err != nil {
		return err
	}
	d.giveBack(e.Result.IPs)
	return nil
}

func podName(m pod.Metadata) string { return m.Namespace + "/" + m.Name }
