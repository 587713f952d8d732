package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

var (
	stopPodMarked   = failpoint.Register("stop-pod.marked")
	stopPodKilled   = failpoint.Register("stop-pod.killed")
	stopPodDetached = failpoint.Register("stop-pod.detached")
	stopPodDropped  = failpoint.Register("stop-pod.pause-dropped")
	stopPodDone     = failpoint.Register("stop-pod.done")
	removePodEmpty  = failpoint.Register("remove-pod.empty")
	removePodFreed  = failpoint.Register("remove-pod.freed")
	removePodDone   = failpoint.Register("remove-pod.done")
)

// StopPod kills what runs in the pod and gives back its network and namespaces.
// A pod that is stopped already, or that nobody knows, is no error.
func (c *Core) StopPod(ctx context.Context, id pod.ID) error {
	t := ops.Task{Key: "stop pod " + string(id), About: c.aboutPod(ops.Stop, id)}
	_, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		if err := c.stopPod(ctx, id); err != nil {
			return "", err
		}
		return "", failpoint.Hit(stopPodDone)
	})
	return ignoreUnknown(err)
}

func (c *Core) stopPod(ctx context.Context, id pod.ID) error {
	unlock, err := c.begin(ctx, id, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.book.pod(id)
	if err != nil {
		return err
	}
	if r.State != pod.Exited {
		// The intent: from here on no container starts, and a crash is
		// followed by the same steps again.
		if _, err = c.book.change(ctx, id, func(r *pod.Record) error {
			return advance(&r.State, pod.Ended)
		}); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(stopPodMarked); err != nil {
		return err
	}
	// A container that is being made or started at this moment would be there
	// after the pod was stopped, and one whose making hangs would keep the pod.
	if err := c.inAir.GiveUp(ctx, id); err != nil {
		return err
	}
	if r, err = c.book.pod(id); err != nil {
		return err
	}
	return c.tearDown(ctx, r)
}

// tearDown ends everything that a stopped pod must not hold. Each step is
// idempotent, and the whole is repeated after a failure or a crash.
func (c *Core) tearDown(ctx context.Context, r *pod.Record) error {
	stage.Enter(ctx, "kill containers")
	if err := c.killAll(ctx, r); err != nil {
		return err
	}
	if err := failpoint.Hit(stopPodKilled); err != nil {
		return err
	}
	c.tellPod(ctx, pod.PluginStopPod, r) // they may look at the network
	if !r.Config.HostNetwork() {
		stage.Enter(ctx, "detach network")
		if err := c.Network.Detach(ctx, r.ID); err != nil {
			return err
		}
	}
	if err := failpoint.Hit(stopPodDetached); err != nil {
		return err
	}
	stage.Enter(ctx, "stop sandbox")
	return c.Sandboxes.Stop(ctx, r.ID)
}

// killAll kills the pod's containers side by side, then its own process.
func (c *Core) killAll(ctx context.Context, r *pod.Record) error {
	var g errgroup.Group
	for _, ctr := range r.Containers {
		g.Go(func() error {
			if err := c.stopContainer(ctx, ctr.ID, 0); err != nil {
				return err
			}
			c.tellEnd(ctx, ctr.ID)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if r.Sandbox.Pause == nil {
		return nil
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return fmt.Errorf("stop the process of pod %s: %w", r.ID.Short(), err)
	}
	if err := c.dropProcess(ctx, h, string(r.ID)); err != nil {
		return err
	}
	if err := failpoint.Hit(stopPodDropped); err != nil {
		return err
	}
	_, err = c.book.change(ctx, r.ID, func(r *pod.Record) error {
		r.Sandbox.Pause, r.Sandbox.PIDNS = nil, ""
		return nil
	})
	return err
}

// RemovePod stops the pod if need be, removes its containers, and forgets it.
// A pod that nobody knows is no error.
func (c *Core) RemovePod(ctx context.Context, id pod.ID) error {
	t := ops.Task{Key: "remove pod " + string(id), About: c.aboutPod(ops.Remove, id)}
	_, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		if err := c.removePod(ctx, id); err != nil {
			return "", err
		}
		return "", failpoint.Hit(removePodDone)
	})
	return ignoreUnknown(err)
}

func (c *Core) removePod(ctx context.Context, id pod.ID) error {
	if err := c.stopPod(ctx, id); err != nil {
		return err
	}
	unlock, err := c.begin(ctx, id, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.book.pod(id)
	if err != nil {
		return err
	}
	stage.Enter(ctx, "remove containers")
	for _, ctr := range r.Containers {
		if err := c.RemoveContainer(ctx, ctr.ID); err != nil {
			return err
		}
	}
	if err := c.deleteAgain(ctx, r); err != nil {
		return err
	}
	if err := failpoint.Hit(removePodEmpty); err != nil {
		return err
	}
	stage.Enter(ctx, "remove sandbox")
	if err := c.free(ctx, r); err != nil {
		return err
	}
	if err := failpoint.Hit(removePodFreed); err != nil {
		return err
	}
	if err := c.book.remove(ctx, id); err != nil {
		return err
	}
	c.tellPod(ctx, pod.PluginRemovePod, r)
	return nil
}

// free deletes what a stopped pod without containers still has on the host.
func (c *Core) free(ctx context.Context, r *pod.Record) error {
	return errors.Join(
		c.Bundles.Remove(ctx, string(r.ID)),
		c.Sandboxes.Remove(ctx, r.ID),
	)
}
