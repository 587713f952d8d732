package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

const (
	// checkpointTimeout is what a checkpoint may take whose caller does not say.
	checkpointTimeout = 2 * time.Minute
	// thawTimeout bounds what is done to let containers go on.
	thawTimeout = 30 * time.Second
	// rootDiff is what a container has changed, in its checkpoint.
	rootDiff = "rootfs-diff.tar"
)

// CheckpointContainer writes the state of a running container to an archive. The
// container is frozen while it is captured, and goes on whatever comes of it.
func (c *Core) CheckpointContainer(ctx context.Context, id pod.ContainerID, q pod.Checkpoint) error {
	asked, err := ops.Ask("", q.Location)
	if err != nil {
		return err
	}
	limit := checkpointLimit(ctx, q.Timeout)
	t := ops.Task{Key: "checkpoint " + string(id), Asked: asked, About: c.aboutContainer(ops.Checkpoint, id), Grace: limit}
	_, err = c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		ctx, cancel := limited(ctx, limit)
		defer cancel()
		return "", c.checkpointContainer(ctx, id, q)
	})
	return err
}

// checkpointLimit is what the caller allows. Some of the time until its deadline
// is kept for letting the containers go on.
func checkpointLimit(ctx context.Context, asked time.Duration) time.Duration {
	limit := checkpointTimeout
	if asked > 0 {
		limit = asked
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-min(left/5, 2*time.Second))
	}
	return max(limit, time.Millisecond)
}

func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not done within %s: %w", limit.Round(time.Millisecond), errdefs.ErrDeadline))
}

// checkpointContainer makes a checkpoint in a folder of ours first, so that the
// container is frozen for no longer than that takes.
func (c *Core) checkpointContainer(ctx context.Context, id pod.ContainerID, q pod.Checkpoint) (err error) {
	r, _, err := c.book.container(id)
	if err != nil {
		return err
	}
	alone, err := c.oneOfPod(ctx, r.ID)
	if err != nil {
		return err
	}
	defer alone()
	r, ctr, unlock, err := c.own(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	h, err := c.checkpointer(r)
	if err != nil {
		return err
	}
	if err := mayCheckpoint(ctr); err != nil {
		return err
	}
	if err := lookForRoom(ctx, q.Location); err != nil {
		return err
	}
	dir, err := c.Checkpoints.Make(id)
	if err != nil {
		return errors.Join(err, c.Checkpoints.Remove(id))
	}
	err = c.frozen(ctx, h, []*pod.Container{ctr}, func() error { return c.capture(ctx, h, ctr, dir) })
	if errors.Is(err, errStillFrozen) {
		return err // the folder stays until it was thawed
	}
	unlock()
	alone()
	if err == nil {
		stage.Enter(ctx, "write archive")
		err = c.Checkpoints.Describe(dir, r, ctr, q.Files)
	}
	if err == nil {
		err = c.Checkpoints.Export(ctx, dir, q.Location)
	}
	return errors.Join(err, c.Checkpoints.Remove(id))
}

// oneOfPod waits until no other checkpoint of the pod is being captured: each
// blocks the pod's network, and would unblock that of the other.
func (c *Core) oneOfPod(ctx context.Context, id pod.ID) (unlock func(), err error) {
	stage.Enter(ctx, "wait for another checkpoint of the pod")
	return c.locks.Lock(ctx, "checkpoint "+string(id))
}

// checkpointer is the handler of a pod, if it can make checkpoints here.
func (c *Core) checkpointer(r *pod.Record) (Checkpointer, error) {
	h, err := c.tried(r.Handler, r.Revision)
	if err == nil && !h.Info().Features.Checkpoints {
		h, err = c.Handlers.Get(r.Handler) // criu may have been installed meanwhile
	}
	if err != nil {
		return nil, err
	}
	f := h.Info().Features
	able, ok := h.(Checkpointer)
	if !ok || c.Checkpoints == nil || !f.Checkpoints {
		return nil, fmt.Errorf("handler %s cannot make checkpoints on this node: %s: %w", h.Info().Name, f.NoCheckpoints, errdefs.ErrUnimplemented)
	}
	return able, nil
}

func mayCheckpoint(ctr *pod.Container) error {
	if ctr.State != pod.Running {
		return fmt.Errorf("container %s (%s) is %s, and must be Running: %w", ctr.ID.Short(), ctr.Config.Metadata.Name, ctr.State, errdefs.ErrPrecondition)
	}
	return nil
}

// lookForRoom says before anything is frozen that the archive cannot be written.
func lookForRoom(ctx context.Context, location string) error {
	_, err := hostpath.Look(ctx, filepath.Dir(location), func() (struct{}, error) {
		folder, err := os.Stat(filepath.Dir(location))
		if err == nil && !folder.IsDir() {
			err = errors.New("it is no folder")
		}
		if err != nil {
			return struct{}{}, fmt.Errorf("the folder of checkpoint %s: %w: %w", location, err, errdefs.ErrInvalidArgument)
		}
		if _, err := os.Lstat(location); !errors.Is(err, fs.ErrNotExist) {
			return struct{}{}, errors.Join(err, fmt.Errorf("checkpoint %s: something is there already; remove it or name another path: %w", location, errdefs.ErrAlreadyExists))
		}
		return struct{}{}, nil
	})
	return err
}

// capture writes what a frozen container is at into a folder.
func (c *Core) capture(ctx context.Context, h Checkpointer, ctr *pod.Container, dir string) error {
	stage.Enter(ctx, "capture processes of "+ctr.Config.Metadata.Name)
	if err := h.Capture(ctx, ctr, dir); err != nil {
		return err
	}
	stage.Enter(ctx, "capture root file system of "+ctr.Config.Metadata.Name)
	return c.Roots.Diff(ctx, ctr.ID, filepath.Join(dir, rootDiff))
}

// errStillFrozen says that a container was not let go on.
var errStillFrozen = errors.New("a container stays frozen, which is tried again")

// frozen freezes containers, does something, and lets them go on whatever came of
// it. One that does not go on is tried again, and the error wraps errStillFrozen.
func (c *Core) frozen(ctx context.Context, h Checkpointer, all []*pod.Container, do func() error) (err error) {
	defer func() {
		stage.Enter(ctx, "thaw")
		if failed := c.thaw(ctx, h, all); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	stage.Enter(ctx, "freeze")
	for _, ctr := range all {
		if err := h.Freeze(ctx, string(ctr.ID)); err != nil {
			return err
		}
	}
	return do()
}

func (c *Core) thaw(ctx context.Context, h Checkpointer, all []*pod.Container) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), thawTimeout)
	defer cancel()
	var failed error
	for _, ctr := range all {
		if err := h.Thaw(ctx, string(ctr.ID)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%w: %w", errStillFrozen, err))
			c.later.Add("thaw container "+string(ctr.ID), func(ctx context.Context) error { return c.thawOne(ctx, ctr.ID) })
		}
	}
	return failed
}

// unfreeze ends what keeps a container frozen, so that it can be stopped.
func (c *Core) unfreeze(ctx context.Context, id pod.ContainerID) error {
	r, _, err := c.book.container(id)
	if err != nil {
		return ignoreUnknown(err)
	}
	return c.inAir.Unfreeze(ctx, r.ID, id)
}

// thawLeft lets those containers of a pod go on of which an earlier daemon was
// making a checkpoint.
func (c *Core) thawLeft(ctx context.Context, r *pod.Record) error {
	if c.Checkpoints == nil {
		return nil
	}
	left, err := c.Checkpoints.Left()
	if err != nil || len(left) == 0 {
		return err
	}
	var failed error
	for _, ctr := range r.Containers {
		if slices.Contains(left, ctr.ID) {
			failed = errors.Join(failed, c.thawOne(ctx, ctr.ID))
		}
	}
	return failed
}

// thawOne lets a container go on, unless a checkpoint of it is being made, and
// forgets the one that was.
func (c *Core) thawOne(ctx context.Context, id pod.ContainerID) error {
	r, _, err := c.book.container(id)
	if errors.Is(err, errdefs.ErrNotFound) {
		return errors.Join(c.Checkpoints.EndWriters(ctx, id), c.Checkpoints.Remove(id))
	}
	if err != nil {
		return err
	}
	alone, err := c.oneOfPod(ctx, r.ID)
	if err != nil {
		return err
	}
	defer alone()
	unlock, err := c.locks.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.Checkpoints.EndWriters(ctx, id); err != nil {
		return err
	}
	h, err := c.Handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return err
	}
	if able, ok := h.(Checkpointer); ok {
		if err := able.Thaw(ctx, string(id)); err != nil {
			return err
		}
	}
	return c.Checkpoints.Remove(id)
}

// sweepCheckpoints deletes the folders of checkpoints of containers that no
// record knows.
func (c *Core) sweepCheckpoints(ctx context.Context) error {
	if c.Checkpoints == nil {
		return nil
	}
	left, err := c.Checkpoints.Left()
	for _, id := range left {
		if _, _, unknown := c.book.container(id); errors.Is(unknown, errdefs.ErrNotFound) {
			err = errors.Join(err, c.thawOne(ctx, id))
		}
	}
	return err
}
