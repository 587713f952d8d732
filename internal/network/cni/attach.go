package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

var (
	addNext = failpoint.Register("cni.add-next")
	addDone = failpoint.Register("cni.add-done")
	delNext = failpoint.Register("cni.del-next")
	delDone = failpoint.Register("cni.del-done")
)

// Attach runs ADD. If it fails, DEL is run at once; if that fails too, the
// entry stays in the ledger.
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
	if e, ok := d.ledger.Get(req.ID); ok && e.State != network.Damaged {
		res, done, err := d.again(ctx, e, req)
		if done || err != nil {
			return res, err
		}
	}
	cl := d.conflist()
	switch {
	case !cl.configured:
		return network.Result{}, fmt.Errorf("attach pod %s: there is no CNI configuration in %s: %w", req.ID, d.cfg.ConfDir, errdefs.ErrUnavailable)
	case cl.err != nil:
		return network.Result{}, fmt.Errorf("attach pod %s: %w", req.ID, cl.err)
	}
	e, rt, err := d.begin(cl, req, limits)
	if err != nil {
		return network.Result{}, err
	}
	e.Result, err = d.add(ctx, cl.list, rt)
	if err == nil {
		e.State = network.Attached
		err = d.ledger.Record(e)
	}
	if err != nil {
		err = fmt.Errorf("attach pod %s: CNI configuration %s, network %q: %w", req.ID, cl.file, cl.list.Name, err)
		return network.Result{}, errors.Join(err, d.del(context.WithoutCancel(ctx), e))
	}
	return e.Result, nil
}

// again looks at what the ledger has for the pod. An attempt that was
// interrupted is taken back, because ADD must not be repeated without DEL.
func (d *Driver) again(ctx context.Context, e network.Entry, req network.Request) (res network.Result, done bool, err error) {
	if e.Driver != Name {
		return res, false, fmt.Errorf("attach pod %s: driver %q has attached it: %w", req.ID, e.Driver, errdefs.ErrPrecondition)
	}
	if e.State == network.Attached && e.Request.NetNS == req.NetNS {
		d.ledger.Adopt(req.ID)
		return e.Result, true, nil
	}
	return res, false, d.del(ctx, e)
}

// begin writes the intent.
func (d *Driver) begin(cl conflist, req network.Request, limits network.Bandwidth) (network.Entry, *libcni.RuntimeConf, error) {
	rt := runtimeConf(&req, capabilityArgs(&req, limits))
	if err := checkArgs(rt.Args); err != nil {
		return network.Entry{}, nil, fmt.Errorf("attach pod %s: %w", req.ID, err)
	}
	data, err := json.Marshal(record{File: cl.file, Conflist: cl.frozen, Args: rt.Args, Capabilities: declared(cl.list, rt.CapabilityArgs)})
	if err != nil {
		return network.Entry{}, nil, fmt.Errorf("attach pod %s: record CNI arguments: %w", req.ID, err)
	}
	e := network.Entry{ID: req.ID, Driver: Name, State: network.Adding, Request: req, Data: data, Durable: true}
	return e, rt, d.ledger.Record(e)
}

// declared are the capabilities that any plugin of the list asks for. The rest
// need not be kept.
func declared(list *libcni.NetworkConfigList, caps map[string]any) map[string]any {
	out := map[string]any{}
	for _, p := range list.Plugins {
		for name, on := range p.Network.Capabilities {
			if v, ok := caps[name]; ok && on {
				out[name] = v
			}
		}
	}
	return out
}

func (d *Driver) add(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) (network.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.AddTimeout)
	defer cancel()
	if err := loopbackUp(rt.NetNS); err != nil {
		return network.Result{}, err
	}
	d.gcMu.RLock()
	defer d.gcMu.RUnlock()
	if err := failpoint.Hit(addNext); err != nil {
		return network.Result{}, err
	}
	r, err := d.cni.AddNetworkList(ctx, list, rt)
	if err != nil {
		return network.Result{}, err
	}
	if err := failpoint.Hit(addDone); err != nil {
		return network.Result{}, err
	}
	return convert(r)
}

// loopbackUp does what the loopback plugin does, without a process.
func loopbackUp(netns string) error {
	var h *netlink.Handle
	err := network.InNetNS(netns, func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return err
	}
	defer h.Close()
	// The loopback interface is number 1 of every namespace.
	if err := h.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}}); err != nil {
		return fmt.Errorf("bring loopback up in the pod: %w", err)
	}
	return nil
}

// Detach runs DEL with the configuration that ADD used.
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
		return d.delCached(ctx, string(id))
	case e.Driver != Name:
		return fmt.Errorf("detach pod %s: driver %q has attached it: %w", id, e.Driver, errdefs.ErrPrecondition)
	}
	return d.del(ctx, e)
}

// del runs DEL and forgets the entry. The pod's lock is held.
func (d *Driver) del(ctx context.Context, e network.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DelTimeout)
	defer cancel()
	list, rt, rec, err := restore(e)
	if err != nil {
		return err
	}
	rt.NetNS = nsPath(rt.NetNS)
	if err := failpoint.Hit(delNext); err != nil {
		return err
	}
	if err := d.cni.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("detach pod %s: CNI configuration %s, network %q: %w", e.ID, rec.File, list.Name, err)
	}
	if err := failpoint.Hit(delDone); err != nil {
		return err
	}
	return d.ledger.Forget(e.ID)
}
