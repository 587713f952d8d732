package lifecycle

import (
	"context"
	"fmt"
	"slices"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
	"fairlead.run/internal/undo"
)

var (
	createRecorded  = failpoint.Register("create.recorded")
	createLeased    = failpoint.Register("create.leased")
	createMounted   = failpoint.Register("create.mounted")
	createBundled   = failpoint.Register("create.bundled")
	createCommitted = failpoint.Register("create.committed")
)

// CreateContainer prepares a container in a ready pod: image, root file system
// and bundle. The OCI runtime is not run before StartContainer. The same
// request arriving again joins the first or gets its result.
func (c *Core) CreateContainer(ctx context.Context, id pod.ID, cfg pod.ContainerConfig) (pod.ContainerID, error) {
	m := cfg.Metadata
	asked, err := ops.Ask("", &cfg)
	if err != nil {
		return "", err
	}
	about := c.aboutPod(ops.Create, id)
	about.Kind, about.Name = ops.KindContainer, about.Name+"/"+m.Name
	t := ops.Task{Key: fmt.Sprintf("container %s %q %d", id, m.Name, m.Attempt), Asked: asked, About: about}
	made, err := c.inAir.Do(ctx, t, func(ctx context.Context) (string, error) {
		made, err := c.createContainer(ctx, id, cfg)
		if err == nil {
			err = failpoint.Hit(createCommitted)
		}
		return string(made), err
	})
	return pod.ContainerID(made), err
}

func (c *Core) createContainer(ctx context.Context, id pod.ID, cfg pod.ContainerConfig) (_ pod.ContainerID, err error) {
	stage.Enter(ctx, "wait for the pod")
	if err := c.book.await(ctx, id); err != nil {
		return "", err
	}
	r, err := c.book.pod(id)
	if err != nil {
		return "", err
	}
	if r, err = c.takeSameBack(ctx, r, &cfg); err != nil {
		return "", err
	}
	if same, err := sameContainer(r, &cfg); same != "" || err != nil {
		return same, err
	}
	h, err := c.tried(r.Handler, r.Revision)
	if err != nil {
		return "", err
	}
	warm(h)
	ctr := &pod.Container{ID: pod.NewContainerID(), State: pod.Creating, CreatedAt: c.now(), Config: cfg}
	defer c.unmadeContainer(ctx, ctr.ID, &err)
	var u undo.Stack
	defer u.Rollback(ctx, &err)
	stage.Enter(ctx, "record")
	u.PushLast("delete record", func(ctx context.Context) error { return c.forgetContainer(ctx, ctr.ID) })
	r, err = c.book.change(ctx, id, func(r *pod.Record) error {
		if r.State != pod.Running {
			return fmt.Errorf("pod %s is %s, and only a ready pod takes containers: %w", id.Short(), r.State, errdefs.ErrPrecondition)
		}
		r.Containers = append(r.Containers, ctr)
		return nil
	})
	if err != nil {
		return "", err
	}
	if err := failpoint.Hit(createRecorded); err != nil {
		return "", err
	}
	prepared := *ctr
	if err := c.prepare(ctx, &u, r, &prepared, h.Info()); err != nil {
		return "", err
	}
	stage.Enter(ctx, "commit")
	_, err = c.book.changeContainer(ctx, ctr.ID, func(_ *pod.Record, now *pod.Container) error {
		now.Image, now.User = prepared.Image, prepared.User
		now.StopSignal, now.Bundle, now.Adjusted = prepared.StopSignal, prepared.Bundle, prepared.Adjusted
		return advance(&now.State, pod.Prepared)
	})
	if err != nil {
		return "", err
	}
	c.tell(ctx, pod.PluginCreated, ctr.ID)
	return ctr.ID, nil
}

// tried resolves a handler of which is known what it can do. After a restart it
// is not until the trial is over, and what nobody knows of would be left out: the
// filter of system calls, and the labels.
func (c *Core) tried(name, revision string) (Handler, error) {
	h, err := c.Handlers.Serving(name, revision)
	if err != nil || h.Info().Ready {
		return h, err
	}
	return c.Handlers.Get(name)
}

// sameContainer finds the container that an earlier call with this metadata made.
func sameContainer(r *pod.Record, cfg *pod.ContainerConfig) (pod.ContainerID, error) {
	for _, ctr := range r.Containers {
		if ctr.Config.Metadata != cfg.Metadata {
			continue
		}
		if ctr.State != pod.Creating && ctr.State != pod.Exited && equalJSON(&ctr.Config, cfg) {
			return ctr.ID, nil
		}
		return "", containerDiffers(ctr)
	}
	return "", nil
}

func containerDiffers(ctr *pod.Container) error {
	return fmt.Errorf("container %s of this pod has this name and attempt already, is %s, and was asked for differently or ended; remove it or count the attempt up: %w",
		ctr.ID, ctr.State, errdefs.ErrAlreadyExists)
}

// prepare makes everything that the container needs and notes it in ctr.
func (c *Core) prepare(ctx context.Context, u *undo.Stack, r *pod.Record, ctr *pod.Container, h pod.HandlerInfo) error {
	stage.Enter(ctx, "find image")
	u.Push("release image", func(ctx context.Context) error { return c.Images.Release(ctx, ctr.ID) })
	img, err := c.Images.Use(ctx, ctr.Config.Image.Image, ctr.ID)
	if err != nil {
		return err
	}
	if err := failpoint.Hit(createLeased); err != nil {
		return err
	}
	ctr.Image = img.ContainerImage
	volumes, err := c.useVolumes(ctx, ctr)
	if err != nil {
		return err
	}
	labels, err := c.Labels.Container(r, ctr, h)
	if err != nil {
		return err
	}
	stage.Enter(ctx, "mount root file system")
	// The root file system is mounted inside the bundle, so the bundle goes last.
	u.Push("remove bundle", func(ctx context.Context) error { return c.Bundles.Remove(ctx, string(ctr.ID)) })
	u.Push("remove root file system", func(ctx context.Context) error { return c.Roots.Remove(ctx, ctr.ID) })
	u.Push("unmount root file system", func(ctx context.Context) error { return c.Roots.Unmount(ctx, ctr.ID) })
	rootfs, err := c.Roots.Mount(ctx, r, ctr.ID, img.Lower, labels.Mount)
	if err != nil {
		return err
	}
	if err := failpoint.Hit(createMounted); err != nil {
		return err
	}
	if err := c.mountVolumes(ctx, r, ctr, volumes, labels.Mount); err != nil {
		return err
	}
	stage.Enter(ctx, "write bundle")
	u.Push("tell NRI plugins", func(ctx context.Context) error {
		c.tellOf(ctx, pod.PluginUnmade, r, ctr)
		return nil
	})
	b, err := c.Bundles.Write(ctx, pod.BundleRequest{Record: r, Container: ctr, Image: img.Config, Rootfs: rootfs, Handler: h, Labels: labels})
	if err != nil {
		return err
	}
	for _, w := range b.Warnings {
		c.log.Warn("a wish of the container cannot be met on this host", "pod", r.ID, "container", ctr.ID, "wish", w)
	}
	ctr.User, ctr.StopSignal, ctr.Bundle = &b.User, b.StopSignal, b.Path
	if err := failpoint.Hit(createBundled); err != nil || ctr.Config.Restore == "" {
		return err
	}
	return c.prepareRestore(ctx, ctr)
}

// forgetContainer takes a container out of its pod's record.
func (c *Core) forgetContainer(ctx context.Context, id pod.ContainerID) error {
	_, err := c.book.changeContainer(ctx, id, func(r *pod.Record, _ *pod.Container) error {
		r.Containers = slices.DeleteFunc(r.Containers, func(ctr *pod.Container) bool { return ctr.ID == id })
		return nil
	})
	return ignoreUnknown(err)
}
