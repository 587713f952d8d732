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
	startBegun     = failpoint.Register("start.begun")
	startRan       = failpoint.Register("start.ran")
	startRefused   = failpoint.Register("start.refused")
	startCommitted = failpoint.Register("start.committed")
)

// Reasons of a container that Exited, as the CRI has them.
const (
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOMKilled  = "OOMKilled"
	reasonStartError = "StartError"
	reasonUnknown    = pod.ReasonUnknown
	reasonRemoved    = "Removed"
)

// Exit codes of a container whose process has none.
const (
	codeStartError = 128
	codeLost       = 255
)

// StartContainer runs the container's process. Starting one that runs is no
// error: the caller may not have heard of the first time.
func (c *Core) StartContainer(ctx context.Context, id pod.ContainerID) error {
	t := ops.Task{Key: startKey(id), About: c.aboutContainer(ops.Start, id)}
	_, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		if err := c.startContainer(ctx, id); err != nil {
			return "", err
		}
		return "", failpoint.Hit(startCommitted)
	})
	return err
}

func startKey(id pod.ContainerID) string { return "start " + string(id) }

func (c *Core) startContainer(ctx context.Context, id pod.ContainerID) error {
	r, ctr, unlock, err := c.own(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	switch {
	case ctr.State == pod.Running:
		return nil
	case ctr.State != pod.Created:
		return fmt.Errorf("container %s is %s; only a created one can start: %w", id.Short(), ctr.State, errdefs.ErrPrecondition)
	case r.State != pod.Running:
		return fmt.Errorf("pod %s is %s: %w", r.ID.Short(), r.State, errdefs.ErrPrecondition)
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return err
	}
	if err := failpoint.Hit(startBegun); err != nil {
		return err
	}
	err = c.launch(ctx, h, r, ctr)
	unlock() // what plugins want of containers then may have to wait for their locks
	c.tellEnd(ctx, id)
	return err
}

// launch runs the process and commits that it runs, or how it failed.
func (c *Core) launch(ctx context.Context, h Handler, r *pod.Record, ctr *pod.Container) (err error) {
	c.enterPlugins(ctx)
	if err := c.Plugins.Container(ctx, pod.PluginStart, r, ctr); err != nil {
		return err
	}
	if err := c.makeRoom(ctx, h, r, ctr); err != nil {
		return fmt.Errorf("start container %s: %w", ctr.ID.Short(), err)
	}
	stage.Enter(ctx, "run")
	s := pod.StartRequest{
		ID: string(ctr.ID), Bundle: pod.Bundle{Path: ctr.Bundle}, LogPath: r.LogPath(ctr), LogDir: r.Config.LogDirectory,
		Stdin: ctr.Config.Process.Stdin, StdinOnce: ctr.Config.Process.StdinOnce, TTY: ctr.Config.Process.TTY,
	}
	if ctr.Config.Restore != "" {
		s.Restore = c.Roots.Images(ctr.ID)
	}
	p, err := h.Start(ctx, s)
	if errors.Is(err, errdefs.ErrUnavailable) || errors.Is(err, errdefs.ErrDeadline) {
		return err // it was not the container's fault, and may be tried again
	}
	if err != nil {
		if err := failpoint.Hit(startRefused); err != nil {
			return err
		}
		return errors.Join(err, c.startFailed(ctx, ctr.ID, err))
	}
	// A process whose start is not on record would run beside the next attempt.
	var u undo.Stack
	defer u.Rollback(ctx, &err)
	u.Push("end the process", func(ctx context.Context) error {
		err := c.dropProcess(ctx, h, string(ctr.ID))
		c.book.undo(ctr.ID, c.now())
		return err
	})
	if err := failpoint.Hit(startRan); err != nil {
		return err
	}
	stage.Enter(ctx, "commit")
	now, err := c.book.changeContainer(ctx, ctr.ID, func(_ *pod.Record, ctr *pod.Container) error {
		ctr.Process, ctr.StartedAt = &p, c.now()
		if err := advance(&ctr.State, pod.Started); err != nil {
			return err
		}
		if e, ok := c.book.takeEarly(ctr.ID); ok {
			return end(ctr, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.tell(ctx, pod.PluginStarted, ctr.ID)
	if now.State == pod.Exited {
		c.tidy(ctx, r.Use(), ctr.ID)
	}
	return nil
}

// startFailed commits that the container will never run.
func (c *Core) startFailed(ctx context.Context, id pod.ContainerID, cause error) error {
	_, err := c.book.changeContainer(ctx, id, func(_ *pod.Record, ctr *pod.Container) error {
		ctr.FinishedAt, ctr.ExitCode = c.now(), codeStartError
		ctr.Reason, ctr.Message = reasonStartError, cause.Error()
		return advance(&ctr.State, pod.Ended)
	})
	return err
}
