package lifecycle

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

var (
	execBegun    = failpoint.Register("exec.begun")
	execRan      = failpoint.Register("exec.ran")
	attachBegun  = failpoint.Register("attach.begun")
	attachJoined = failpoint.Register("attach.joined")
)

// ExecOptions say what Exec runs.
type ExecOptions struct {
	Command []string
	TTY     bool
	// Stdio are the process's own ends of stdin, stdout and stderr; nil means
	// /dev/null. Exec closes them, whether it succeeds or not.
	Stdio [3]*os.File
}

// Exec runs one more process in a running container.
func (c *Core) Exec(ctx context.Context, id pod.ContainerID, o ExecOptions) (_ Exec, err error) {
	defer func() {
		for _, f := range o.Stdio {
			if f != nil {
				err = errors.Join(err, f.Close())
			}
		}
	}()
	if len(o.Command) == 0 {
		return nil, fmt.Errorf("exec in container %s: the command is empty: %w", id.Short(), errdefs.ErrInvalidArgument)
	}
	ctx, done := c.inAir.Follow(ctx, c.aboutContainer(ops.Exec, id))
	defer done()
	r, ctr, err := c.running(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit(execBegun); err != nil {
		return nil, err
	}
	stage.Enter(ctx, "run")
	x, err := h.Exec(ctx, pod.ExecRequest{Container: ctr, Command: o.Command, TTY: o.TTY, Stdio: o.Stdio})
	if err != nil {
		return nil, err
	}
	x = lasting{x, func(do func(context.Context) error) {
		c.later.Add("forget command "+rand.Text()+" in container "+string(id), do)
	}}
	if err := failpoint.Hit(execRan); err != nil {
		return nil, errors.Join(err, x.Close(ctx))
	}
	return x, nil
}

// lasting is forgotten later if that cannot be done now, as of a process that is
// stuck in the kernel. Nobody else would, for as long as this daemon runs.
type lasting struct {
	Exec
	later func(do func(context.Context) error)
}

// Close implements pod.Exec.
func (x lasting) Close(ctx context.Context) error {
	err := x.Exec.Close(ctx)
	if err != nil {
		x.later(x.Exec.Close)
	}
	return err
}

// Attach copies the container's output from now on to the given files until
// the attachment is closed. It closes its own use of the files, not the caller's.
func (c *Core) Attach(ctx context.Context, id pod.ContainerID, stdout, stderr *os.File, stdin bool) (Attachment, error) {
	ctx, done := c.inAir.Follow(ctx, c.aboutContainer(ops.Attach, id))
	defer done()
	_, ctr, err := c.running(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	if stdin && !ctr.Config.Process.Stdin {
		return nil, fmt.Errorf("attach to container %s: it was created without stdin: %w", id.Short(), errdefs.ErrInvalidArgument)
	}
	if err := failpoint.Hit(attachBegun); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	a, err := c.Streams.Attach(ctx, id, stdout, stderr, stdin)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit(attachJoined); err != nil {
		return nil, errors.Join(fmt.Errorf("attach: %w", err), a.Close())
	}
	return a, nil
}

// Resize sets the size of the container's terminal, in characters.
func (c *Core) Resize(ctx context.Context, id pod.ContainerID, width, height uint16) error {
	if _, _, err := c.running(ctx, id); err != nil {
		return fmt.Errorf("resize: %w", err)
	}
	return c.Streams.Resize(ctx, id, width, height)
}

// ReopenLog makes the monitor close and open the container's log, after
// somebody renamed it.
func (c *Core) ReopenLog(ctx context.Context, id pod.ContainerID) error {
	ctx, done := c.inAir.Follow(ctx, c.aboutContainer(ops.Reopen, id))
	defer done()
	if _, _, err := c.running(ctx, id); err != nil {
		return fmt.Errorf("reopen log: %w", err)
	}
	stage.Enter(ctx, "ask the monitor")
	return c.Streams.ReopenLog(ctx, id)
}

// running returns a container that runs, or says what it does instead.
func (c *Core) running(ctx context.Context, id pod.ContainerID) (*pod.Record, *pod.Container, error) {
	r, ctr, err := c.settled(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if ctr.State != pod.Running {
		return nil, nil, fmt.Errorf("container %s (%s) is %s, and must be Running: %w",
			id.Short(), ctr.Config.Metadata.Name, ctr.State, errdefs.ErrPrecondition)
	}
	return r, ctr, nil
}
