package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

var (
	stopSignalled = failpoint.Register("stop.signalled")
	stopKilled    = failpoint.Register("stop.killed")
	stopDone      = failpoint.Register("stop.done")
)

// ladder is how long each step of the kill ladder may take after the grace
// period: SIGKILL to the first process, then to everything in the cgroup.
const ladder = 900 * time.Millisecond

// startPatience is how long a stop waits for a start that is under way, as far as
// its grace allows. Starts take some milliseconds.
const startPatience = time.Second

// StopContainer sends the container's stop signal, after grace SIGKILL to its
// first process, and then to everything in its cgroup. It returns when the
// container has ended, at most two seconds after grace. Calls do not wait for
// each other: one with a shorter grace ends the container earlier, and only the
// first sends the stop signal. A container that is being started is stopped when
// it has, or its start is given up. One that does not run, or that nobody knows,
// is no error.
func (c *Core) StopContainer(ctx context.Context, id pod.ContainerID, grace time.Duration) error {
	// A client that gives up does not leave a container half stopped.
	_, err := c.inAir.Do(ctx, ops.Task{About: c.aboutContainer(ops.Stop, id), Grace: grace}, func(ctx context.Context) (string, error) {
		begun := time.Now()
		if err := c.inAir.EndStart(ctx, id, min(grace, startPatience)); err != nil {
			return "", err
		}
		grace := max(0, grace-time.Since(begun))
		if err := c.unfreeze(ctx, id); err != nil {
			return "", err
		}
		if err := c.stopContainer(ctx, id, grace); err != nil {
			return "", err
		}
		c.tellEnd(ctx, id)
		return "", failpoint.Hit(stopDone)
	})
	return notGone(err)
}

// stopContainer is StopContainer as a part of another operation, which may have
// the container's lock.
func (c *Core) stopContainer(ctx context.Context, id pod.ContainerID, grace time.Duration) error {
	r, ctr, err := c.settled(ctx, id)
	if err != nil {
		return ignoreUnknown(err)
	}
	if !mayLive(ctr.State) {
		return nil
	}
	if err := c.endContainer(ctx, r, ctr, grace); err != nil {
		return err
	}
	c.inAir.QuitExecs(id)
	return nil
}

func (c *Core) endContainer(ctx context.Context, r *pod.Record, ctr *pod.Container, grace time.Duration) error {
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return fmt.Errorf("stop container %s: %w", ctr.ID.Short(), err)
	}
	if grace > 0 {
		if stopped, err := c.terminate(ctx, h, ctr, grace); stopped || err != nil {
			return err
		}
	}
	return c.forceStop(ctx, h, ctr)
}

func mayLive(s pod.State) bool { return s == pod.Running || s == pod.Unknown }

// terminate asks the process to end and waits for grace.
func (c *Core) terminate(ctx context.Context, h Handler, ctr *pod.Container, grace time.Duration) (stopped bool, err error) {
	if err := c.askToEnd(ctx, h, ctr.ID); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		c.log.Warn("the stop signal was not delivered; the container is killed after its grace period", "container", ctr.ID, "error", err)
	}
	if err := failpoint.Hit(stopSignalled); err != nil {
		return false, err
	}
	stage.Enter(ctx, fmt.Sprintf("wait %s for the end after %s", grace, ctr.StopSignal))
	return c.waitEnd(ctx, ctr.ID, grace)
}

// askToEnd sends the stop signal, once: many programs take a second one for the
// wish that they end at once, and callers repeat what they ask for.
func (c *Core) askToEnd(ctx context.Context, h Handler, id pod.ContainerID) error {
	unlock, err := c.locks.Lock(ctx, "stop signal "+string(id))
	if err != nil {
		return err
	}
	defer unlock()
	_, ctr, err := c.book.container(id)
	if err != nil || ctr.Process != nil && ctr.Process.AskedToEnd {
		return err
	}
	if err := h.Kill(ctx, ctr, ctr.StopSignal, false); err != nil {
		return err
	}
	_, err = c.book.changeContainer(ctx, id, func(_ *pod.Record, ctr *pod.Container) error {
		if ctr.Process == nil {
			return errUnchanged // its start was not recorded
		}
		p := *ctr.Process
		p.AskedToEnd = true
		ctr.Process = &p
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) && !errors.Is(err, errdefs.ErrNotFound) {
		c.log.Warn("a container was sent its stop signal, which cannot be recorded; the next request to stop it sends it again", "container", id, "error", err)
	}
	return nil
}

// forceStop climbs the kill ladder.
func (c *Core) forceStop(ctx context.Context, h Handler, ctr *pod.Container) error {
	var failed error
	for _, all := range []bool{false, true} {
		stage.Enter(ctx, "kill")
		if err := h.Kill(ctx, ctr, "SIGKILL", all); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			failed = errors.Join(failed, err)
		}
		if err := failpoint.Hit(stopKilled); err != nil {
			return err
		}
		if ended, err := c.waitEnd(ctx, ctr.ID, ladder); ended || err != nil {
			return err
		}
	}
	if ended, err := c.observeEnd(ctx, h, ctr); ended || err != nil {
		return err
	}
	return errors.Join(fmt.Errorf("container %s did not end on SIGKILL to its process and its cgroup; a process in it is stuck in the kernel: %w",
		ctr.ID.Short(), errdefs.ErrDeadline), failed)
}

// observeEnd looks for itself whether a container ended whose end nobody told, or
// could not be recorded, which is an error.
func (c *Core) observeEnd(ctx context.Context, h Handler, ctr *pod.Container) (bool, error) {
	seen := h.Observe(ctx, string(ctr.ID), ctr.Process)
	if seen.Err != nil || seen.Alive {
		return false, nil
	}
	e := c.exitOf(seen)
	if err := c.recordEnd(ctx, string(ctr.ID), e); err != nil {
		c.recordLater(string(ctr.ID), e)
		return false, fmt.Errorf("record that container %s has ended: %w", ctr.ID.Short(), err)
	}
	ended, _ := c.waitEnd(ctx, ctr.ID, 0)
	return ended, nil
}

// exitOf is the end that was seen, or a lost one as of now.
func (c *Core) exitOf(seen pod.Seen) pod.Exit {
	if seen.Exit != nil {
		return *seen.Exit
	}
	return pod.Exit{Lost: true, Found: true, FinishedAt: c.now()}
}

// waitEnd says whether the container is Exited within d. The error is why ctx
// ended before.
func (c *Core) waitEnd(ctx context.Context, id pod.ContainerID, d time.Duration) (bool, error) {
	end := c.book.end(id)
	select {
	case <-end:
		return true, nil
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-end:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
