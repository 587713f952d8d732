package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Keeper is the side of Roots that an audit looks at.
type Keeper struct {
	*Roots
	// Lower are the layers of an image that a container uses, topmost first, to
	// mount it again.
	Lower func(ctx context.Context, c *pod.Container, image string) ([]string, error)
	// Label is the SELinux label of that root file system.
	Label func(r *pod.Record, c *pod.Container) (string, error)
}

var _ pod.Keeper = Keeper{}

// Held lists writable layers and what is mounted in the folders of containers.
func (k Keeper) Held(context.Context, []*pod.Record) ([]pod.Held, error) {
	layers := filepath.Join(k.root, "containers")
	entries, err := os.ReadDir(layers)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list writable layers: %w", err)
	}
	out := []pod.Held{}
	for _, e := range entries {
		out = append(out, pod.Held{Kind: pod.KindWritable, Name: filepath.Join(layers, e.Name()), Owner: e.Name()})
	}
	base := filepath.Join(k.state, "containers")
	mounts, err := List(base)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if rest, ok := strings.CutPrefix(m, base+"/"); ok {
			owner, _, _ := strings.Cut(rest, "/")
			out = append(out, pod.Held{Kind: pod.KindMount, Name: m, Owner: owner})
		}
	}
	return out, nil
}

// Wants are the root file systems of containers that run or are about to, and
// what their mounts need.
func (k Keeper) Wants(r *pod.Record) []pod.Held {
	var out []pod.Held
	for _, c := range r.Containers {
		if c.State != pod.Created && c.State != pod.Running {
			continue
		}
		out = append(out,
			pod.Held{Kind: pod.KindMount, Name: k.target(c.ID), Owner: string(c.ID)},
			pod.Held{Kind: pod.KindWritable, Name: k.dir(c.ID), Owner: string(c.ID)})
		for i, m := range c.Config.Mounts {
			if len(m.UIDMappings) > 0 || m.Image != nil {
				out = append(out, pod.Held{Kind: pod.KindMount, Name: k.mountTarget(c.ID, i), Owner: string(c.ID)})
			}
		}
	}
	return out
}

// Drop unmounts, or deletes a writable layer. Where its root file system is
// still mounted, the layer stays.
func (k Keeper) Drop(ctx context.Context, h pod.Held) error {
	id := pod.ContainerID(h.Owner)
	if err := checkID(id); err != nil {
		return err
	}
	switch h.Kind {
	case pod.KindMount:
		return Unmount(ctx, h.Name)
	case pod.KindWritable:
		mounts, err := List(k.dir(id))
		if err != nil {
			return err
		}
		if len(mounts) > 0 {
			return fmt.Errorf("delete %s: %s is mounted in it; unmount that first: %w", h.Name, mounts[0], errdefs.ErrPrecondition)
		}
		return k.Remove(ctx, id)
	}
	return fmt.Errorf("remove %s %s: root file systems have none: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}

// Restore mounts the root file system of a container that has not started, or
// the image that one of its mounts shows. One that runs has both in use where
// the host does not see it, and overlay must not be mounted twice on one writable
// layer.
func (k Keeper) Restore(ctx context.Context, r *pod.Record, h pod.Held) error {
	c := r.Container(pod.ContainerID(h.Owner))
	image, volume, ok := k.imageAt(c, h)
	if !ok {
		return fmt.Errorf("put back %s %s: remove the container, and its owner makes another: %w", h.Kind, h.Name, errdefs.ErrPrecondition)
	}
	lower, err := k.Lower(ctx, c, image)
	if err != nil {
		return err
	}
	label, err := k.Label(r, c)
	if err != nil {
		return err
	}
	if volume < 0 {
		_, err = k.Mount(ctx, r, c.ID, lower, label)
	} else {
		_, err = k.MountImage(ctx, r, pod.VolumeRequest{Container: c.ID, Index: volume, Lower: lower, Label: label})
	}
	return err
}

// imageAt is the image that is to be mounted at a place, and for which of the
// container's mounts; -1 is its root file system. ok is false where nothing can
// be mounted now.
func (k Keeper) imageAt(c *pod.Container, h pod.Held) (image string, volume int, ok bool) {
	if c == nil || c.State != pod.Created || h.Kind != pod.KindMount {
		return "", 0, false
	}
	if h.Name == k.target(c.ID) {
		return c.Image.ID, -1, true
	}
	for i, id := range c.Image.Volumes {
		if id != "" && h.Name == k.mountTarget(c.ID, i) {
			return id, i, true
		}
	}
	return "", 0, false
}
