package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

var (
	removeEnded     = failpoint.Register("remove.ended")
	removeDeleted   = failpoint.Register("remove.deleted")
	removeUnmounted = failpoint.Register("remove.unmounted")
	removeReleased  = failpoint.Register("remove.released")
	removeLayer     = failpoint.Register("remove.layer-deleted")
	removeBundle    = failpoint.Register("remove.bundle-deleted")
	removeForgotten = failpoint.Register("remove.forgotten")
)

// RemoveContainer kills the container if it runs and deletes all that it has
// on this host but its log. One that nobody knows is no error.
func (c *Core) RemoveContainer(ctx context.Context, id pod.ContainerID) error {
	t := ops.Task{Key: "remove " + string(id), About: c.aboutContainer(ops.Remove, id)}
	_, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		if err := c.unfreeze(ctx, id); err != nil {
			return "", err
		}
		lift, err := c.inAir.Abandon(ctx, id)
		if err != nil {
			return "", err
		}
		defer lift()
		if err := c.removeContainer(ctx, id); err != nil {
			return "", err
		}
		return "", failpoint.Hit(removeForgotten)
	})
	return ignoreUnknown(err)
}

func (c *Core) removeContainer(ctx context.Context, id pod.ContainerID) error {
	r, unlock, err := c.ownEnded(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := failpoint.Hit(removeEnded); err != nil {
		return err
	}
	if err := c.inAir.AwaitExecs(ctx, id); err != nil {
		return err
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return fmt.Errorf("remove container %s: %w", id.Short(), err)
	}
	stage.Enter(ctx, "delete from runtime")
	if err := c.deleteProcess(ctx, h, id); err != nil {
		return err
	}
	if err := failpoint.Hit(removeDeleted); err != nil {
		return err
	}
	if err := c.freeContainer(ctx, id); err != nil {
		return err
	}
	r, ctr, err := c.book.container(id)
	if err != nil {
		return err
	}
	if err := c.forgetContainer(ctx, id); err != nil {
		return err
	}
	c.tellOf(ctx, pod.PluginRemoved, r, ctr)
	return nil
}

// ownEnded ends the container for good, and is own for it once plugins have heard
// of that. They hear of it while nobody has its lock: what they then want of
// containers may have to wait for theirs, whose owners may wait for this one's.
func (c *Core) ownEnded(ctx context.Context, id pod.ContainerID) (*pod.Record, func(), error) {
	r, _, unlock, err := c.own(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if err = c.stopContainer(ctx, id, 0); err == nil {
		err = c.spend(ctx, id)
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	if c.halfMade("", id) { // it has no end to tell of, and must not be made now
		return r, unlock, nil
	}
	unlock()
	c.tellEnd(ctx, id)
	r, _, unlock, err = c.own(ctx, id)
	return r, unlock, err
}

// spend makes sure that the container never starts again, before parts of it go.
func (c *Core) spend(ctx context.Context, id pod.ContainerID) error {
	_, err := c.book.changeContainer(ctx, id, func(_ *pod.Record, ctr *pod.Container) error {
		if ctr.State != pod.Created {
			return errUnchanged
		}
		ctr.Reason, ctr.FinishedAt = reasonRemoved, c.now()
		return advance(&ctr.State, pod.Ended)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// deleteProcess waits for tidy, which may be doing the same thing.
func (c *Core) deleteProcess(ctx context.Context, h Handler, id pod.ContainerID) error {
	unlock, err := c.locks.Lock(ctx, "tidy "+string(id))
	if err != nil {
		return err
	}
	defer unlock()
	return c.dropProcess(ctx, h, string(id))
}

// freeContainer deletes what a container that ended has on the host.
func (c *Core) freeContainer(ctx context.Context, id pod.ContainerID) error {
	stage.Enter(ctx, "unmount")
	if err := c.Roots.Unmount(ctx, id); err != nil {
		return err
	}
	if err := failpoint.Hit(removeUnmounted); err != nil {
		return err
	}
	stage.Enter(ctx, "delete writable layer")
	if err := c.Roots.Remove(ctx, id); err != nil {
		return err
	}
	if err := failpoint.Hit(removeLayer); err != nil {
		return err
	}
	stage.Enter(ctx, "delete bundle")
	if err := c.Bundles.Remove(ctx, string(id)); err != nil {
		return err
	}
	if err := failpoint.Hit(removeBundle); err != nil {
		return err
	}
	stage.Enter(ctx, "release image")
	if err := c.Images.Release(ctx, id); err != nil {
		return err
	}
	return failpoint.Hit(removeReleased)
}
