package lifecycle

import (
	"context"

	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

// What could not be made is taken back at once. Where that fails too, because a
// network plugin is missing, say, the record stays as it is, Creating: the core
// tries again by itself, and so does the next request for the same, and the
// next daemon.

// unmadePod sees to it that a pod whose making has failed is taken back. It is
// deferred before the undos are, so that it finds what they have left.
func (c *Core) unmadePod(ctx context.Context, id pod.ID, err *error) {
	if *err == nil || !c.halfMade(id, "") {
		return
	}
	c.takeBackLater(c.aboutPod(ops.TakeBack, id), string(id), func(ctx context.Context) error { return c.takePodBack(ctx, id) })
}

// takeBackLater has something done as an operation, which is listed, and which
// the next try joins if it hangs.
func (c *Core) takeBackLater(about ops.About, id string, do func(context.Context) error) {
	t := ops.Task{Key: ops.TakeBack + " " + id, About: about}
	c.later.Add(about.Verb+" "+about.Kind+" "+id, func(ctx context.Context) error {
		_, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) { return "", do(ctx) })
		return err
	})
}

// takePodBack removes a pod that was never made, if it is still there.
func (c *Core) takePodBack(ctx context.Context, id pod.ID) error {
	unlock, err := c.locks.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.book.pod(id)
	if err != nil || r.State != pod.Creating {
		return ignoreUnknown(err)
	}
	return c.rollBackPod(ctx, r)
}

// unmadeContainer is unmadePod for a container.
func (c *Core) unmadeContainer(ctx context.Context, id pod.ContainerID, err *error) {
	if *err == nil || !c.halfMade("", id) {
		return
	}
	c.takeBackLater(c.aboutContainer(ops.TakeBack, id), string(id), func(ctx context.Context) error { return c.takeContainerBack(ctx, id) })
}

// takeContainerBack removes a container that was never made, if it is still there.
func (c *Core) takeContainerBack(ctx context.Context, id pod.ContainerID) error {
	r, ctr, unlock, err := c.own(ctx, id)
	if err != nil {
		return ignoreUnknown(err)
	}
	defer unlock()
	if ctr.State != pod.Creating {
		return nil
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return err
	}
	return c.rollBackContainer(ctx, h, id)
}

// takeSameBack takes back the container that an earlier attempt of this request
// has left, and returns the record as it then is.
func (c *Core) takeSameBack(ctx context.Context, r *pod.Record, cfg *pod.ContainerConfig) (*pod.Record, error) {
	for _, ctr := range r.Containers {
		if ctr.State != pod.Creating || ctr.Config.Metadata != cfg.Metadata {
			continue
		}
		if err := c.takeContainerBack(ctx, ctr.ID); err != nil {
			return nil, err
		}
		return c.book.pod(r.ID)
	}
	return r, nil
}

// halfMade says whether a pod or a container is on record as not made.
func (c *Core) halfMade(id pod.ID, container pod.ContainerID) bool {
	if container != "" {
		_, ctr, err := c.book.container(container)
		return err == nil && ctr.State == pod.Creating
	}
	r, err := c.book.pod(id)
	return err == nil && r.State == pod.Creating
}
