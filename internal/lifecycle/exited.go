package lifecycle

import (
	"context"
	"errors"
	"strings"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

var (
	exitSeen     = failpoint.Register("exit.seen")
	exitRecorded = failpoint.Register("exit.recorded")
	exitTidied   = failpoint.Register("exit.tidied")
)

// tidyTimeout bounds what is done after the end of a container on nobody's
// request. RemoveContainer does it again if it failed.
const tidyTimeout = 20 * time.Second

// exited records the end of a process. It is called at least once for each and
// must not wait for the operations on the container: they wait for it.
func (c *Core) exited(id string, e pod.Exit) {
	if err := c.recordEnd(context.Background(), id, e); err != nil {
		c.log.Error("the end of a process cannot be recorded, and is tried again", "id", id, "error", err)
		c.recordLater(id, e)
	}
}

func (c *Core) recordLater(id string, e pod.Exit) {
	c.later.Add("record the end of process "+id, func(ctx context.Context) error { return c.recordEnd(ctx, id, e) })
}

func (c *Core) recordEnd(ctx context.Context, id string, e pod.Exit) error {
	if r, err := c.book.pod(pod.ID(id)); err == nil {
		return c.pauseExited(ctx, r, e)
	}
	r, ctr, err := c.book.container(pod.ContainerID(id))
	if err != nil {
		return nil // an exec, or a container that was removed meanwhile
	}
	ended := false
	_, err = c.book.changeContainer(ctx, ctr.ID, func(_ *pod.Record, now *pod.Container) error {
		if c.book.ofUndone(now.ID, e) {
			return errUnchanged
		}
		switch now.State {
		case pod.Running, pod.Unknown:
			if err := failpoint.Hit(exitSeen); err != nil {
				return err
			}
			ended = true
			return end(now, e)
		case pod.Created:
			c.book.keepEarly(now.ID, e)
		}
		return errUnchanged
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if ended {
		c.tellEndLater(ctx, ctr.ID)
		c.tidyLater(ctx, r.Use(), ctr.ID)
	}
	return failpoint.Hit(exitRecorded)
}

// errUnchanged keeps a change from being written when there is nothing to write.
var errUnchanged = errors.New("nothing changed")

// timeFound is said of a time that is later than that of the end.
const timeFound = "nobody was there to see when it ended; the time is when it was found to have"

// end moves a container to Exited.
func end(ctr *pod.Container, e pod.Exit) error {
	ctr.ExitCode, ctr.FinishedAt = e.Code, e.FinishedAt
	switch {
	case e.Lost:
		ctr.ExitCode, ctr.Reason = codeLost, reasonUnknown
		ctr.Message = "it is not known how the process ended: at that moment the monitor was not running, or another process was its parent"
	case e.OOMKilled:
		ctr.Reason = reasonOOMKilled
	case e.Code == 0:
		ctr.Reason = reasonCompleted
	default:
		ctr.Reason = reasonError
	}
	if e.Found {
		ctr.Message = strings.TrimPrefix(ctr.Message+"; "+timeFound, "; ")
	}
	return advance(&ctr.State, pod.Ended)
}

// tidyLater is tidy that nobody waits for. A core that is ending leaves it to
// RemoveContainer.
func (c *Core) tidyLater(ctx context.Context, use pod.HandlerUse, id pod.ContainerID) {
	_ = c.inAir.Begin(ctx, ops.Task{About: c.aboutContainer(ops.Tidy, id)}, func(ctx context.Context) error {
		c.tidy(ctx, use, id)
		return nil
	})
}

// tidy lets the runtime forget a container that ended, so that removing it
// later is quick. A failure is not final: RemoveContainer repeats it.
func (c *Core) tidy(ctx context.Context, use pod.HandlerUse, id pod.ContainerID) {
	ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
	defer cancel()
	stage.Enter(ctx, "wait for its turn")
	unlock, err := c.locks.Lock(ctx, "tidy "+string(id))
	if err != nil {
		return
	}
	defer unlock()
	stage.Enter(ctx, "delete from runtime")
	h, err := c.Handlers.Serving(use.Handler, use.Revision)
	if err == nil {
		err = h.Delete(ctx, string(id))
	}
	if err == nil {
		err = failpoint.Hit(exitTidied)
	}
	if err != nil {
		c.log.Warn("the runtime keeps a container that ended; removing the container tries again", "container", id, "error", err)
	}
}

// pauseExited records that the pod's own process ended: the pod is not ready
// any more, and its containers lost their PID namespace.
func (c *Core) pauseExited(ctx context.Context, r *pod.Record, e pod.Exit) error {
	if r.Sandbox.Pause == nil || r.State != pod.Running {
		return nil
	}
	_, err := c.book.change(ctx, r.ID, func(r *pod.Record) error {
		if r.State != pod.Running {
			return errUnchanged
		}
		return advance(&r.State, pod.Ended)
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	if err == nil {
		c.log.Warn("the process that holds a pod's PID namespace ended", "pod", r.ID, "code", e.Code, "signal", e.Signal)
	}
	return err
}
