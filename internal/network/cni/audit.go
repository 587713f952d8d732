package cni

import (
	"context"
	"fmt"
	"path/filepath"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

var _ pod.Keeper = (*Driver)(nil)

// Held lists the results that libcni keeps. What the plugins themselves keep,
// only they know; Reconcile has them collect it.
func (d *Driver) Held(context.Context, []*pod.Record) ([]pod.Held, error) {
	cached, err := d.cni.GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("list cached CNI results: %w", err)
	}
	out := []pod.Held{}
	for _, a := range cached {
		out = append(out, pod.Held{
			Kind: pod.KindResult, Name: filepath.Join(a.Network, a.ContainerID, a.IfName), Owner: a.ContainerID,
		})
	}
	return out, nil
}

// Wants nothing: without its cached result a pod can be detached all the same.
func (d *Driver) Wants(*pod.Record) []pod.Held { return nil }

// Drop runs DEL with a result of no pod.
func (d *Driver) Drop(ctx context.Context, h pod.Held) error {
	if h.Kind != pod.KindResult {
		return fmt.Errorf("remove %s %s: CNI has none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
	}
	return d.delCached(ctx, h.Owner)
}

// Restore does not put back anything.
func (d *Driver) Restore(_ context.Context, _ *pod.Record, h pod.Held) error {
	return fmt.Errorf("put back %s %s: CNI has none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}
