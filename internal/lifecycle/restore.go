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
// started, go on from a checkpoint. The same request arriving again joins the
// first or gets its result, even if the checkpoint is gone by then. After a
// failure nothing is left of a pod of which no container was started.
func (c *Core) RestorePod(ctx context.Context, q pod.Restore) (pod.ID, []pod.Restored, error) {
	m := q.Config.Metadata
	q.Config.Restore = q.From
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
		id, err := c.restorePod(ctx, &q)
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
		if ctr.Config.Restore != "" {
			out = append(out, pod.Restored{Name: ctr.Config.Metadata.Name, ID: ctr.ID})
		}
	}
	return r.ID, out, nil
}

func (c *Core) restorePod(ctx context.Context, q *pod.Restore) (pod.ID, error) {
	h, err := c.Handlers.Get(q.Handler)
	if err != nil {
		return "", err
	}
	stage.Enter(ctx, "look for the same pod")
	if id, err := c.restoredPod(ctx, q, h.Info().Name); id != "" || err != nil {
		return id, err
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
	id, err := c.RunPod(ctx, q.Config, q.Handler)
	if err != nil {
		return "", err
	}
	for _, cfg := range configs {
		if _, err := c.CreateContainer(ctx, id, cfg); err != nil {
			return "", errors.Join(err, c.removeUnused(context.WithoutCancel(ctx), id))
		}
	}
	return id, nil
}

// restoredPod finds the pod that an earlier request of this kind made. One of
// which not all containers were made before a crash is not found, and RunPod and
// CreateContainer go on with it. One that differs is in the way.
func (c *Core) restoredPod(ctx context.Context, q *pod.Restore, handler string) (pod.ID, error) {
	for _, r := range c.book.list() {
		if r.Config.Metadata != q.Config.Metadata {
			continue
		}
		if err := c.book.await(ctx, r.ID); err != nil {
			return "", err
		}
		now, err := c.book.pod(r.ID)
		if err != nil || now.State == pod.Creating {
			continue // RunPod, which alone may take it back, decides
		}
		if now.State != pod.Running || now.Handler != handler || !equalJSON(&now.Config, &q.Config) {
			return "", differs(now)
		}
		if all, err := allRestored(now, q.Containers); all || err != nil {
			return now.ID, err
		}
	}
	return "", nil
}

// allRestored says whether a pod has all the containers that are asked for.
func allRestored(r *pod.Record, configs []pod.ContainerConfig) (bool, error) {
	for _, cfg := range configs {
		i := slices.IndexFunc(r.Containers, func(ctr *pod.Container) bool { return ctr.Config.Metadata == cfg.Metadata })
		if i < 0 || r.Containers[i].State == pod.Creating {
			return false, nil
		}
		// Which folder it came from is not told by the name: the checkpoint may be gone.
		cfg.Restore = r.Containers[i].Config.Restore
		if cfg.Restore == "" || !equalJSON(&r.Containers[i].Config, &cfg) {
			return false, containerDiffers(r.Containers[i])
		}
	}
	return true, nil
}

// removeUnused removes a pod unless somebody has started a container of it.
func (c *Core) removeUnused(ctx context.Context, id pod.ID) error {
	r, err := c.book.pod(id)
	if err != nil {
		return ignoreUnknown(err)
	}
	if slices.ContainsFunc(r.Containers, func(ctr *pod.Container) bool { return ctr.State != pod.Creating && ctr.State != pod.Created }) {
		return nil
	}
	return c.RemovePod(ctx, id)
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
