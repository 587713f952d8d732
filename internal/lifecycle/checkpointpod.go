package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

// CheckpointPod writes the state that running containers of a pod have at one
// moment into an empty folder, where each gets a folder by its id. All of them are
// frozen until the last one was captured, and go on whatever comes of it.
func (c *Core) CheckpointPod(ctx context.Context, id pod.ID, q pod.PodCheckpoint) error {
	asked, err := ops.Ask("", []any{q.Location, q.Containers})
	if err != nil {
		return err
	}
	limit := checkpointLimit(ctx, 0)
	t := ops.Task{Key: "checkpoint pod " + string(id), Asked: asked, About: c.aboutPod(ops.Checkpoint, id), Grace: limit}
	_, err = c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		ctx, cancel := limited(ctx, limit)
		defer cancel()
		return "", c.checkpointPod(ctx, id, q)
	})
	return err
}

func (c *Core) checkpointPod(ctx context.Context, id pod.ID, q pod.PodCheckpoint) (err error) {
	if err := c.book.await(ctx, id); err != nil {
		return err
	}
	alone, err := c.oneOfPod(ctx, id)
	if err != nil {
		return err
	}
	defer alone()
	unlock, err := c.lockAll(ctx, q.Containers)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := c.book.pod(id)
	if err != nil {
		return err
	}
	if r.State != pod.Running {
		return fmt.Errorf("pod %s is %s, and must be Running: %w", id.Short(), r.State, errdefs.ErrPrecondition)
	}
	h, err := c.checkpointer(r)
	if err != nil {
		return err
	}
	all, err := selected(r, q.Containers)
	if err != nil {
		return err
	}
	if err := lookForEmpty(ctx, q.Location); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, takeBack(q))
		}
	}()
	err = c.captureAll(ctx, h, all, q.Location)
	unlock()
	if err != nil {
		return err
	}
	stage.Enter(ctx, "describe")
	return c.describeAll(r, all, q)
}

// lockAll takes the locks of containers, always in the same order.
func (c *Core) lockAll(ctx context.Context, ids []pod.ContainerID) (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, u := range held {
			u()
		}
	}
	stage.Enter(ctx, "wait for its turn")
	sorted := slices.Sorted(slices.Values(ids))
	for _, id := range slices.Compact(sorted) {
		u, err := c.locks.Lock(ctx, string(id))
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, u)
	}
	return unlock, nil
}

// selected are the containers of a pod that a caller names, all of which must run.
func selected(r *pod.Record, ids []pod.ContainerID) ([]*pod.Container, error) {
	var out []*pod.Container
	for i, id := range ids {
		ctr := r.Container(id)
		switch {
		case ctr == nil:
			return nil, fmt.Errorf("container_ids[%d]: pod %s has no container %q: %w", i, r.ID.Short(), id, errdefs.ErrInvalidArgument)
		case slices.Contains(out, ctr):
			return nil, fmt.Errorf("container_ids[%d]: %q is there twice: %w", i, id, errdefs.ErrInvalidArgument)
		}
		if err := mayCheckpoint(ctr); err != nil {
			return nil, err
		}
		out = append(out, ctr)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("container_ids is empty: %w", errdefs.ErrInvalidArgument)
	}
	return out, nil
}

func lookForEmpty(ctx context.Context, folder string) error {
	_, err := hostpath.Look(ctx, folder, func() (struct{}, error) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return struct{}{}, fmt.Errorf("the folder of the checkpoint: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		if len(entries) > 0 {
			return struct{}{}, fmt.Errorf("the folder of the checkpoint, %s, is not empty: %w", folder, errdefs.ErrInvalidArgument)
		}
		return struct{}{}, nil
	})
	return err
}

// takeBack deletes what a failed checkpoint has written into its folder.
func takeBack(q pod.PodCheckpoint) error {
	var failed []error
	for _, id := range q.Containers {
		failed = append(failed, os.RemoveAll(filepath.Join(q.Location, string(id))))
	}
	for name := range q.Files {
		failed = append(failed, os.RemoveAll(filepath.Join(q.Location, name)))
	}
	return errors.Join(failed...)
}

// captureAll captures containers in one frozen moment. Their folders of ours say
// meanwhile that they are frozen.
func (c *Core) captureAll(ctx context.Context, h Checkpointer, all []*pod.Container, to string) error {
	var err error
	for _, ctr := range all {
		_, made := c.Checkpoints.Make(ctr.ID)
		err = errors.Join(err, made)
	}
	if err == nil {
		err = c.captureFrozen(ctx, h, all, to)
	}
	if errors.Is(err, errStillFrozen) {
		return err // the folders stay until all were thawed
	}
	for _, ctr := range all {
		err = errors.Join(err, c.Checkpoints.Remove(ctr.ID))
	}
	return err
}

func (c *Core) captureFrozen(ctx context.Context, h Checkpointer, all []*pod.Container, to string) error {
	return c.frozen(ctx, h, all, func() error {
		for _, ctr := range all {
			dir := filepath.Join(to, string(ctr.ID))
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			if err := c.capture(ctx, h, ctr, dir); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Core) describeAll(r *pod.Record, all []*pod.Container, q pod.PodCheckpoint) error {
	for _, ctr := range all {
		if err := c.Checkpoints.Describe(filepath.Join(q.Location, string(ctr.ID)), r, ctr, q.ContainerFiles[ctr.ID]); err != nil {
			return err
		}
	}
	for name, data := range q.Files {
		if err := os.WriteFile(filepath.Join(q.Location, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
