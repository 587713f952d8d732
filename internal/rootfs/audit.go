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
	// Lower are the layers of a container's image, topmost first, to mount a
	// root file system again.
	Lower func(ctx context.Context, c *pod.Container) ([]string, error)
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

// Wants are the root file systems of containers that run or are about to.
func (k Keeper) Wants(r *pod.Record) []pod.Held {
	var out []pod.Held
	for _, c := range r.Containers {
		if c.State != pod.Created && c.State != pod.Running {
			continue
		}
		out = append(out,
			pod.Held{Kind: pod.KindMount, Name: k.target(c.ID), Owner: string(c.ID)},
			pod.Held{Kind: pod.KindWritable, Name: k.dir(c.ID), Owner: string(c.ID)})
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

// Restore mounts the root file system of a container that has not started. One
// that runs is in use where the host does not see it, and overlay must not be
// mounted twice on one writable layer.
func (k Keeper) Restore(ctx context.Context, r *pod.Record, h pod.Held) error {
	c := r.Container(pod.ContainerID(h.Owner))
	if c == nil || c.State != pod.Created || h.Kind != pod.KindMount {
		return fmt.Errorf("put back %s %s: remove the container, and its owner makes another: %w", h.Kind, h.Name, errdefs.ErrPrecondition)
	}
	lower, err := k.Lower(ctx, c)
	if err != nil {
		return err
	}
	_, err = k.Mount(ctx, c.ID, lower)
	return err
}
