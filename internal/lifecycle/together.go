package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// limitTogether gives the sandbox of a pod the limits of its containers together,
// as they are on record; changed, unless it is nil, in the place of what is there of
// it. Those that have ended use nothing.
func (c *Core) limitTogether(ctx context.Context, id pod.ID, changed *pod.Container) error {
	unlock, err := c.locks.Lock(ctx, "limits "+string(id))
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.book.pod(id)
	if err != nil {
		return err
	}
	var all []*pod.Container
	for _, ctr := range r.Containers {
		switch {
		case changed != nil && ctr.ID == changed.ID:
			all = append(all, changed)
		case ctr.State == pod.Created, mayLive(ctr.State):
			all = append(all, ctr)
		}
	}
	return c.Sandboxes.LimitProcess(ctx, r, pod.LimitsTogether(all, r.Config.Overhead))
}

// makeRoom is limitTogether before a container starts, or, without one, when the
// overhead has changed. Less memory than is in use is no reason not to; the old limit
// then holds on.
func (c *Core) makeRoom(ctx context.Context, h Handler, r *pod.Record, ctr *pod.Container) error {
	if !together(h) {
		return nil
	}
	err := c.limitTogether(ctx, r.ID, ctr)
	if errors.Is(err, errdefs.ErrPrecondition) {
		c.log.Info("the limits of a sandbox are kept: more memory is in use than its containers may have now", "pod", r.ID, "error", err)
		return nil
	}
	return err
}

// checkTogether refuses new limits that a handler cannot enforce on one container.
func checkTogether(h Handler, old, updated *pod.Container) error {
	if !together(h) {
		return nil
	}
	if field := pod.NotTogether(old.Limits(), updated.Limits()); field != "" {
		return fmt.Errorf("linux.resources.%s cannot change: handler %s runs all containers of a pod in one process, which has limits of processor time and memory alone: %w",
			field, h.Info().Name, errdefs.ErrUnimplemented)
	}
	return nil
}

// deleteAgain deletes what a runtime may have made anew of the process of a pod that was stopped,
// as a lock: a call for one of its containers looks at that, too, and may just have been under way
// when it was deleted. Where the handler is gone, nothing makes anything any more.
func (c *Core) deleteAgain(ctx context.Context, r *pod.Record) error {
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil || !together(h) {
		return nil
	}
	return h.Delete(ctx, string(r.ID))
}
