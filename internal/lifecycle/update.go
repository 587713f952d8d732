package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
	"fairlead.run/internal/undo"
)

var (
	updateBundled   = failpoint.Register("update.bundled")
	updateApplied   = failpoint.Register("update.applied")
	updateCommitted = failpoint.Register("update.committed")
)

// UpdateContainer changes the limits of a created or running container. A zero
// field of res leaves that limit as it is.
func (c *Core) UpdateContainer(ctx context.Context, id pod.ContainerID, res *pod.Resources) error {
	_, err := c.inAir.Do(ctx, ops.Task{About: c.aboutContainer(ops.Update, id)}, func(ctx context.Context) (string, error) {
		if err := c.updateContainer(ctx, id, res); err != nil {
			return "", err
		}
		return "", failpoint.Hit(updateCommitted)
	})
	return err
}

func (c *Core) updateContainer(ctx context.Context, id pod.ContainerID, res *pod.Resources) error {
	r, ctr, unlock, err := c.own(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if res == nil {
		return nil
	}
	updated := *ctr
	updated.Config.Resources = mergeResources(ctr.Config.Resources, res)
	if err := c.applyResources(ctx, r, ctr, &updated); err != nil {
		return fmt.Errorf("update container %s: %w", id.Short(), err)
	}
	return nil
}

// applyResources puts the limits into the bundle, gives them to the process if
// there is one, and records them. After a failure the old ones are in force.
func (c *Core) applyResources(ctx context.Context, r *pod.Record, old, updated *pod.Container) (err error) {
	if old.State != pod.Created && old.State != pod.Running {
		return fmt.Errorf("it is %s: %w", old.State, errdefs.ErrPrecondition)
	}
	var u undo.Stack
	defer u.Rollback(ctx, &err)
	if old.State == pod.Running { // from the bundle, so after it was put back
		u.Push("put the limits back", func(ctx context.Context) error { return c.limit(ctx, r, old) })
	}
	u.Push("put the bundle back", func(ctx context.Context) error { return c.Bundles.Update(ctx, r, old) })
	stage.Enter(ctx, "write bundle")
	if err := c.Bundles.Update(ctx, r, updated); err != nil {
		return err
	}
	if err := failpoint.Hit(updateBundled); err != nil {
		return err
	}
	if old.State == pod.Running {
		stage.Enter(ctx, "update")
		if err := c.limit(ctx, r, old); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(updateApplied); err != nil {
		return err
	}
	stage.Enter(ctx, "commit")
	_, err = c.book.changeContainer(ctx, old.ID, func(_ *pod.Record, now *pod.Container) error {
		now.Config.Resources = updated.Config.Resources
		return nil
	})
	return err
}

// limit gives a running container the limits that its bundle says now.
func (c *Core) limit(ctx context.Context, r *pod.Record, ctr *pod.Container) error {
	h, err := c.Handlers.Serving(r.Handler)
	if err != nil {
		return err
	}
	return h.Update(ctx, string(ctr.ID), pod.Bundle{Path: ctr.Bundle})
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
