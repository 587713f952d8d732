package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// UpdateContainer changes the limits of a created or running container. A zero
// field of res leaves that limit as it is.
func (c *Core) UpdateContainer(ctx context.Context, id pod.ContainerID, res *pod.Resources) error {
	r, _, err := c.book.container(id)
	if err != nil {
		return err
	}
	unlock, err := c.begin(ctx, r.ID, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	r, ctr, err := c.book.container(id)
	if err != nil {
		return err
	}
	if res == nil {
		return nil
	}
	updated := *ctr
	updated.Config.Resources = mergeResources(ctr.Config.Resources, res)
	switch ctr.State {
	case pod.Created:
		err = c.Bundles.Update(ctx, r, &updated)
	case pod.Running:
		err = c.updateRunning(ctx, r, &updated)
	default:
		err = fmt.Errorf("it is %s: %w", ctr.State, errdefs.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("update container %s: %w", id.Short(), err)
	}
	_, err = c.book.changeContainer(ctx, id, func(_ *pod.Record, now *pod.Container) error {
		now.Config.Resources = updated.Config.Resources
		return nil
	})
	return err
}

func (c *Core) updateRunning(ctx context.Context, r *pod.Record, ctr *pod.Container) error {
	h, err := c.Handlers.Serving(r.Handler)
	if err != nil {
		return err
	}
	return h.Update(ctx, string(ctr.ID), ctr.Config.Resources)
}

// mergeResources lays the set fields of change over old.
func mergeResources(old, change *pod.Resources) *pod.Resources {
	if old == nil {
		old = &pod.Resources{}
	}
	out := *old
	out.CPUPeriod = cmp.Or(change.CPUPeriod, old.CPUPeriod)
	out.CPUQuota = cmp.Or(change.CPUQuota, old.CPUQuota)
	out.CPUShares = cmp.Or(change.CPUShares, old.CPUShares)
	out.CpusetCPUs = cmp.Or(change.CpusetCPUs, old.CpusetCPUs)
	out.CpusetMems = cmp.Or(change.CpusetMems, old.CpusetMems)
	out.MemoryLimit = cmp.Or(change.MemoryLimit, old.MemoryLimit)
	out.MemorySwapLimit = cmp.Or(change.MemorySwapLimit, old.MemorySwapLimit)
	out.OOMScoreAdj = cmp.Or(change.OOMScoreAdj, old.OOMScoreAdj)
	if len(change.HugepageLimits) > 0 {
		out.HugepageLimits = change.HugepageLimits
	}
	if len(change.Unified) > 0 {
		out.Unified = maps.Clone(old.Unified)
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		maps.Copy(out.Unified, change.Unified)
	}
	return &out
}
