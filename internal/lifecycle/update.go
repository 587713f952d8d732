package lifecycle

import (
	"context"
	"errors"
	"fmt"

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
	// What plugins are asked for one after the other is done in that order.
	done, err := c.locks.Lock(ctx, "update "+string(id))
	if err != nil {
		return err
	}
	defer done()
	var final *pod.Resources
	if c.Plugins.Active() && res != nil {
		if final, err = c.askUpdate(ctx, id, res); err != nil {
			return fmt.Errorf("update container %s: %w", id.Short(), err)
		}
	}
	r, ctr, unlock, err := c.own(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if res == nil {
		return nil
	}
	if err := c.applyResources(ctx, r, ctr, ctr.WithLimits(res, final)); err != nil {
		return fmt.Errorf("update container %s: %w", id.Short(), err)
	}
	c.tell(ctx, pod.PluginUpdated, id)
	return nil
}

// askUpdate asks plugins what becomes of new limits. It holds no lock of a
// container, for they may change others at the same time.
func (c *Core) askUpdate(ctx context.Context, id pod.ContainerID, res *pod.Resources) (*pod.Resources, error) {
	r, ctr, err := c.settled(ctx, id)
	if err != nil {
		return nil, err
	}
	c.enterPlugins(ctx)
	return c.Plugins.Update(ctx, r, ctr, res)
}

// applyResources puts the limits into the bundle, gives them to the process if
// there is one, and records them. After a failure the old ones are in force.
func (c *Core) applyResources(ctx context.Context, r *pod.Record, old, updated *pod.Container) (err error) {
	if old.State != pod.Created && old.State != pod.Running {
		return fmt.Errorf("it is %s: %w", old.State, errdefs.ErrPrecondition)
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return err
	}
	if err := checkTogether(h, old, updated); err != nil {
		return err
	}
	var u undo.Stack
	defer u.Rollback(ctx, &err)
	hung := false
	if old.State == pod.Running { // from the bundle, so after it was put back
		u.Push("put the limits back", func(ctx context.Context) error {
			if hung {
				c.limitLater(old.ID)
				return nil
			}
			return c.limit(ctx, r, old)
		})
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
		if err := c.limit(ctx, r, updated); err != nil {
			hung = ctx.Err() != nil || errors.Is(err, errdefs.ErrDeadline)
			return err
		}
	}
	if err := failpoint.Hit(updateApplied); err != nil {
		return err
	}
	stage.Enter(ctx, "commit")
	_, err = c.book.changeContainer(ctx, old.ID, func(_ *pod.Record, now *pod.Container) error {
		now.Config.Resources, now.Adjusted = updated.Config.Resources, updated.Adjusted
		return nil
	})
	return err
}

// limitLater gives a running container the limits that are on record, after a
// runtime has hung that was to change them. Whoever waits for the container's lock
// is not kept waiting for as long again.
func (c *Core) limitLater(id pod.ContainerID) {
	t := ops.Task{Key: "limit " + string(id), About: c.aboutContainer(ops.Update, id)}
	c.later.Add("put the limits of container "+string(id)+" back", func(ctx context.Context) error {
		_, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
			r, ctr, unlock, err := c.own(ctx, id)
			if err != nil {
				return "", ignoreUnknown(err)
			}
			defer unlock()
			if ctr.State != pod.Running {
				return "", nil
			}
			stage.Enter(ctx, "update")
			return "", c.limit(ctx, r, ctr)
		})
		return err
	})
}

// limit gives a running container the limits that its bundle says now.
func (c *Core) limit(ctx context.Context, r *pod.Record, ctr *pod.Container) error {
	h, err := c.tried(r.Handler, r.Revision) // what a runtime takes for "no limit" is known then
	if err != nil {
		return err
	}
	if together(h) {
		return c.limitTogether(ctx, r.ID, ctr)
	}
	return h.Update(ctx, string(ctr.ID), pod.Bundle{Path: ctr.Bundle})
}
