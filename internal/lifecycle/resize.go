package lifecycle

import (
	"context"
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
	"fairlead.run/internal/undo"
)

// ResizePod changes what all containers of a pod may use together, and what the
// pod itself costs. What is nil stays as it is.
func (c *Core) ResizePod(ctx context.Context, id pod.ID, containers, overhead *pod.Resources) error {
	_, err := c.inAir.Do(ctx, ops.Task{About: c.aboutPod(ops.Update, id)}, func(ctx context.Context) (string, error) {
		now, err := c.resizePod(ctx, id, containers, overhead)
		if err == nil && overhead != nil {
			err = c.passOverhead(ctx, now)
		}
		return "", err
	})
	return err
}

func (c *Core) resizePod(ctx context.Context, id pod.ID, containers, overhead *pod.Resources) (now *pod.Record, err error) {
	if _, err := c.book.pod(id); err != nil {
		return nil, err
	}
	unlock, err := c.begin(ctx, id, string(id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := c.book.pod(id)
	if err != nil {
		return nil, err
	}
	if old.State != pod.Running {
		return nil, fmt.Errorf("update the resources of pod %s: it is %s: %w", id.Short(), old.State, errdefs.ErrPrecondition)
	}
	resized := clone(old)
	if containers != nil {
		resized.Config.Resources = containers
	}
	if overhead != nil {
		resized.Config.Overhead = overhead
	}
	c.enterPlugins(ctx)
	if err := c.Plugins.UpdatePod(ctx, old, overhead, containers); err != nil {
		return nil, err
	}
	var u undo.Stack
	defer u.Rollback(ctx, &err)
	u.Push("put the limits back", func(ctx context.Context) error { return c.Sandboxes.Resize(ctx, resized, &old.Config) })
	stage.Enter(ctx, "set limits")
	if err := c.Sandboxes.Resize(ctx, old, &resized.Config); err != nil {
		return nil, fmt.Errorf("update the resources of pod %s: %w", id.Short(), err)
	}
	stage.Enter(ctx, "commit")
	now, err = c.book.change(ctx, id, func(now *pod.Record) error {
		now.Config.Resources, now.Config.Overhead = resized.Config.Resources, resized.Config.Overhead
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.tellPod(ctx, pod.PluginUpdatedPod, now)
	return now, nil
}

// passOverhead gives a pod's new overhead to a sandbox that has limits of its own.
func (c *Core) passOverhead(ctx context.Context, r *pod.Record) error {
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err == nil {
		err = c.makeRoom(ctx, h, r, nil)
	}
	if err != nil {
		return fmt.Errorf("pass the new overhead of pod %s to its sandbox: %w", r.ID.Short(), err)
	}
	return nil
}
