package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

var gcDone = failpoint.Register("cni.gc-done")

// Reconcile releases, in this order: what the ledger knows and nobody owns;
// what only libcni's cache knows, because a power cut took the ledger's entry;
// and by GC what only the plugins know.
func (d *Driver) Reconcile(ctx context.Context, live func(pod.ID) bool) error {
	var errs []error
	used := d.used()
	for _, e := range d.ledger.List(Name) {
		if !live(e.ID) && e.Driver == Name && d.ledger.Inherited(e.ID) {
			errs = append(errs, d.Detach(ctx, e.ID))
		}
	}
	errs = append(errs, d.delUnrecorded(ctx, live))
	cl := d.conflist()
	// A network that never had a pod of ours may belong to another runtime, of
	// whose pods GC would know nothing.
	if cl.list != nil && used[cl.list.Name] {
		errs = append(errs, d.gc(ctx, cl, live))
	}
	return errors.Join(errs...)
}

// used are the networks that this node's records mention.
func (d *Driver) used() map[string]bool {
	names := map[string]bool{}
	for _, e := range d.ledger.List(Name) {
		if list, _, _, err := restore(e); err == nil {
			names[list.Name] = true
		}
	}
	cached, err := d.cni.GetCachedAttachments("")
	if err != nil { // delUnrecorded reports it
		return names
	}
	for _, a := range cached {
		names[a.Network] = true
	}
	return names
}

func (d *Driver) delUnrecorded(ctx context.Context, live func(pod.ID) bool) error {
	cached, err := d.cni.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("list cached CNI results: %w", err)
	}
	var errs []error
	for _, a := range cached {
		id := pod.ID(a.ContainerID)
		_, recorded := d.ledger.Get(id)
		if !live(id) && !recorded {
			errs = append(errs, d.delCached(ctx, a.ContainerID))
		}
	}
	return errors.Join(errs...)
}

// delCached runs DEL with what libcni's cache has for a pod, if anything.
func (d *Driver) delCached(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DelTimeout)
	defer cancel()
	cached, err := d.cni.GetCachedAttachments(id)
	if err != nil {
		return fmt.Errorf("detach pod %s: list cached CNI results: %w", id, err)
	}
	var errs []error
	for _, a := range cached {
		list, err := libcni.NetworkConfFromBytes(a.Config)
		if err == nil {
			rt := &libcni.RuntimeConf{
				ContainerID: a.ContainerID, NetNS: nsPath(a.NetNS), IfName: a.IfName,
				Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
			}
			err = d.cni.DelNetworkList(ctx, list, rt)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("detach pod %s from CNI network %q: %w", id, a.Network, err))
		}
	}
	return errors.Join(errs...)
}

// gc tells the plugins which attachments are still wanted.
func (d *Driver) gc(ctx context.Context, cl conflist, live func(pod.ID) bool) error {
	d.gcMu.Lock()
	defer d.gcMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DelTimeout)
	defer cancel()
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, e := range d.ledger.List(Name) {
		if live(e.ID) || !d.ledger.Inherited(e.ID) {
			args.ValidAttachments = append(args.ValidAttachments,
				types.GCAttachment{ContainerID: string(e.ID), IfName: network.InterfaceName})
		}
	}
	if err := d.cni.GCNetworkList(ctx, cl.list, args); err != nil {
		return fmt.Errorf("collect garbage: CNI configuration %s, network %q: %w", cl.file, cl.list.Name, err)
	}
	return failpoint.Hit(gcDone)
}
