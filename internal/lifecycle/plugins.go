package lifecycle

import (
	"context"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
	"fairlead.run/internal/undo"
)

// nobody is Plugins where there are none.
type nobody struct{}

func (nobody) Active() bool { return false }

func (nobody) Pod(context.Context, pod.PluginEvent, *pod.Record) error { return nil }

func (nobody) Container(context.Context, pod.PluginEvent, *pod.Record, *pod.Container) error {
	return nil
}

func (nobody) UpdatePod(context.Context, *pod.Record, *pod.Resources, *pod.Resources) error {
	return nil
}

func (nobody) Update(context.Context, *pod.Record, *pod.Container, *pod.Resources) (*pod.Resources, error) {
	return nil, nil
}

// tellPod tells plugins of what they can do nothing about.
func (c *Core) tellPod(ctx context.Context, e pod.PluginEvent, r *pod.Record) {
	c.enterPlugins(ctx)
	if err := c.Plugins.Pod(ctx, e, r); err != nil {
		c.log.Warn("an NRI plugin does not like what has happened to a pod", "pod", r.ID, "error", err)
	}
}

// tell is tellPod for a container, as the record has it now.
func (c *Core) tell(ctx context.Context, e pod.PluginEvent, id pod.ContainerID) {
	if r, ctr, err := c.book.container(id); err == nil {
		c.tellOf(ctx, e, r, ctr)
	}
}

func (c *Core) tellOf(ctx context.Context, e pod.PluginEvent, r *pod.Record, ctr *pod.Container) {
	c.enterPlugins(ctx)
	if err := c.Plugins.Container(ctx, e, r, ctr); err != nil {
		c.log.Warn("an NRI plugin does not like what has happened to a container", "container", ctr.ID, "error", err)
	}
}

func (c *Core) enterPlugins(ctx context.Context) {
	if c.Plugins.Active() {
		stage.Enter(ctx, "tell NRI plugins")
	}
}

// tellEnd tells plugins that a container has ended, if it has, and returns when
// they have heard of it. No container's lock may be held: plugins answer with
// limits for any of them.
func (c *Core) tellEnd(ctx context.Context, id pod.ContainerID) {
	if _, ctr, err := c.book.container(id); err == nil && ctr.State == pod.Exited {
		c.tell(ctx, pod.PluginStopped, id)
	}
}

// tellEndLater is tellEnd for who must not wait.
func (c *Core) tellEndLater(ctx context.Context, id pod.ContainerID) {
	if !c.Plugins.Active() {
		c.tellEnd(ctx, id)
		return
	}
	_ = c.inAir.Begin(ctx, ops.Task{About: c.aboutContainer(ops.Tell, id)}, func(ctx context.Context) error {
		c.tellEnd(ctx, id)
		return nil
	})
}

// Limit changes the limits of a container as a plugin wants it, without asking
// plugins.
func (c *Core) Limit(ctx context.Context, id pod.ContainerID, change *pod.Resources) error {
	_, err := c.inAir.Do(ctx, ops.Task{About: c.aboutContainer(ops.Update, id)}, func(ctx context.Context) (string, error) {
		r, ctr, unlock, err := c.own(ctx, id)
		if err != nil {
			return "", err
		}
		defer unlock()
		if change == nil {
			return "", nil
		}
		return "", c.applyResources(ctx, r, ctr, ctr.WithLimits(nil, change))
	})
	return err
}

// tellRun tells plugins of a pod that is about to be ready. They may refuse it.
func (c *Core) tellRun(ctx context.Context, u *undo.Stack, r *pod.Record) error {
	c.enterPlugins(ctx)
	u.Push("tell NRI plugins", func(ctx context.Context) error {
		c.tellPod(ctx, pod.PluginStopPod, r)
		c.tellPod(ctx, pod.PluginRemovePod, r)
		return nil
	})
	if err := c.Plugins.Pod(ctx, pod.PluginRunPod, r); err != nil {
		return err
	}
	return failpoint.Hit(runTold)
}
