package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

// RestorePod makes a pod with created containers whose processes, once they are
// started, go on from a checkpoint. After a failure nothing of it is left.
func (c *Core) RestorePod(ctx context.Context, q pod.Restore) (pod.ID, []pod.Restored, error) {
	m := q.Config.Metadata
	asked, err := ops.Ask(q.Handler, &q)
	if err != nil {
		return "", nil, err
	}
	t := ops.Task{
		Key:   fmt.Sprintf("restore pod %q %q %q %d", m.Namespace, m.Name, m.UID, m.Attempt),
		Asked: asked,
		About: ops.About{Verb: ops.Restore, Kind: ops.KindPod, Name: podName(m, "")},
	}
	id, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		id, err := c.restorePod(ctx, q)
		return string(id), err
	})
	if err != nil {
		return "", nil, err
	}
	r, err := c.book.pod(pod.ID(id))
	if err != nil {
		return "", nil, err
	}
	var out []pod.Restored
	for _, ctr := range r.Containers {
		out = append(out, pod.Restored{Name: ctr.Config.Metadata.Name, ID: ctr.ID})
	}
	return r.ID, out, nil
}

func (c *Core) restorePod(ctx context.Context, q pod.Restore) (_ pod.ID, err error) {
	h, err := c.Handlers.Get(q.Handler)
	if err != nil {
		return "", err
	}
	if f := h.Info().Features; c.Checkpoints == nil || !f.Checkpoints {
		return "", fmt.Errorf("handler %s cannot restore checkpoints on this node: %s: %w", h.Info().Name, f.NoCheckpoints, errdefs.ErrUnimplemented)
	}
	stage.Enter(ctx, "read checkpoint")
	captured, err := c.Checkpoints.Read(ctx, q.From)
	if err != nil {
		return "", err
	}
	configs, err := match(captured, q.Containers)
	if err != nil {
		return "", err
	}
	for _, r := range c.book.list() {
		if r.Config.Metadata == q.Config.Metadata {
			return "", fmt.Errorf("pod %s has this name, uid and attempt already, and nothing can be restored into it; remove it: %w", r.ID.Short(), errdefs.ErrAlreadyExists)
		}
	}
	id, err := c.RunPod(ctx, q.Config, q.Handler)
	if err != nil {
		return "", err
	}
	for _, cfg := range configs {
		if _, err := c.CreateContainer(ctx, id, cfg); err != nil {
			return "", errors.Join(err, c.RemovePod(context.WithoutCancel(ctx), id))
		}
	}
	return id, nil
}

// match gives each configuration the folder of the container that it is for.
func match(captured []pod.Captured, configs []pod.ContainerConfig) ([]pod.ContainerConfig, error) {
	if len(captured) != len(configs) {
		return nil, fmt.Errorf("the checkpoint has %d containers, and container_configs %d: %w", len(captured), len(configs), errdefs.ErrInvalidArgument)
	}
	var out []pod.ContainerConfig
	for i, cfg := range configs {
		name := cfg.Metadata.Name
		at := slices.IndexFunc(captured, func(c pod.Captured) bool { return c.Name == name })
		if at < 0 || slices.ContainsFunc(out, func(o pod.ContainerConfig) bool { return o.Metadata.Name == name }) {
			return nil, fmt.Errorf("container_configs[%d].metadata.name: %q is there twice, or the checkpoint has no such container: %w", i, name, errdefs.ErrInvalidArgument)
		}
		cfg.Restore = captured[at].Dir
		out = append(out, cfg)
	}
	return out, nil
}

// prepareRestore puts what was captured of a container to where it starts from.
func (c *Core) prepareRestore(ctx context.Context, ctr *pod.Container) error {
	stage.Enter(ctx, "compare with the checkpoint")
	if err := c.Checkpoints.Fits(ctr.Config.Restore, ctr.Bundle); err != nil {
		return err
	}
	stage.Enter(ctx, "copy the checkpoint")
	return c.Roots.Restore(ctx, ctr.ID, ctr.Config.Restore)
}
