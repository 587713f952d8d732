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
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
)

var targetRemoved = failpoint.Register("rootfs.target-removed")

// Roots mounts root file systems at the places where Fairlead keeps them:
// STATE/containers/ID/rootfs, with the writable layer in ROOT/containers/ID.
type Roots struct {
	state, root string
}

// New returns the Roots of a state and a root directory, both of which have to
// exist. It fails where no writable layer can be kept.
func New(state, root string) (*Roots, error) {
	if err := CheckDir(root); err != nil {
		return nil, err
	}
	if _, err := os.Stat(state); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return &Roots{state: state, root: root}, nil
}

// Mount mounts the layers, topmost first, and the container's writable layer,
// and returns where. It is idempotent.
func (r *Roots) Mount(ctx context.Context, id pod.ContainerID, lower []string) (string, error) {
	if err := checkID(id); err != nil {
		return "", err
	}
	target := r.target(id)
	if err := Mount(ctx, Spec{Lower: lower, Dir: r.dir(id), Target: target}); err != nil {
		return "", err
	}
	return target, nil
}

// Unmount takes the container's root file system away. It is idempotent.
func (r *Roots) Unmount(ctx context.Context, id pod.ContainerID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return Unmount(ctx, r.target(id))
}

// Remove deletes the container's writable layer and the mount point, which is
// unmounted first if it has to be. It is idempotent.
func (r *Roots) Remove(ctx context.Context, id pod.ContainerID) error {
	if err := r.Unmount(ctx, id); err != nil {
		return err
	}
	// Not RemoveAll: should the unmount have failed to work, this fails too,
	// instead of emptying what is mounted.
	if err := os.Remove(r.target(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove mount point of container %s: %w", id, err)
	}
	if err := failpoint.Hit(targetRemoved); err != nil {
		return err
	}
	return Remove(ctx, r.dir(id))
}

// Usage is what the container has written, in bytes and files. It walks the
// writable layer.
func (r *Roots) Usage(ctx context.Context, id pod.ContainerID) (bytes, inodes int64, err error) {
	if err := checkID(id); err != nil {
		return 0, 0, err
	}
	return usage(ctx, filepath.Join(r.dir(id), "upper"))
}

// Leftovers are containers that have a writable layer or a mount and are not
// in live. They are what a crash left; nothing is done about them here.
func (r *Roots) Leftovers(live map[pod.ContainerID]bool) ([]pod.ContainerID, error) {
	found := map[pod.ContainerID]bool{}
	entries, err := os.ReadDir(filepath.Join(r.root, "containers"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for writable layers of lost containers: %w", err)
	}
	for _, e := range entries {
		found[pod.ContainerID(e.Name())] = true
	}
	base := filepath.Join(r.state, "containers")
	mounts, err := List(base)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if rest, ok := strings.CutPrefix(m, base+"/"); ok {
			id, _, _ := strings.Cut(rest, "/")
			found[pod.ContainerID(id)] = true
		}
	}
	var out []pod.ContainerID
	for id := range found {
		if !live[id] {
			out = append(out, id)
		}
	}
	return out, nil
}

func (r *Roots) target(id pod.ContainerID) string {
	return filepath.Join(r.state, "containers", string(id), "rootfs")
}

func (r *Roots) dir(id pod.ContainerID) string {
	return filepath.Join(r.root, "containers", string(id))
}

// checkID keeps paths made of an id where they belong.
func checkID(id pod.ContainerID) error {
	if s := string(id); s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("container id %q cannot be a folder's name: %w", s, errdefs.ErrInvalidArgument)
	}
	return nil
}
