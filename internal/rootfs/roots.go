package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/userns"
)

var (
	targetRemoved   = failpoint.Register("rootfs.target-removed")
	volumeUnmounted = failpoint.Register("rootfs.volume-unmounted")
)

// Roots mounts root file systems at the places where Fairlead keeps them:
// STATE/containers/ID/rootfs, with the writable layer in ROOT/containers/ID.
type Roots struct {
	state, root string
	unpack      Unpacker
}

// Unpacker unpacks an archive of changes, as a layer is one, over a mounted root
// file system, and bounds what that may take.
type Unpacker func(ctx context.Context, dir string, tarball io.Reader) error

// New returns the Roots of a state and a root directory, both of which have to
// exist; unpack is for Restore alone. It fails where no writable layer can be kept.
func New(state, root string, unpack Unpacker) (*Roots, error) {
	if err := CheckDir(root); err != nil {
		return nil, err
	}
	if _, err := os.Stat(state); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return &Roots{state: state, root: root, unpack: unpack}, nil
}

// Mount mounts the layers, topmost first, and the writable layer of a container
// of that pod, and returns where. With an SELinux label, every file in it has
// that one. It is idempotent.
func (r *Roots) Mount(ctx context.Context, of *pod.Record, id pod.ContainerID, lower []string, label string) (string, error) {
	if err := r.makeFolder(of, id); err != nil {
		return "", err
	}
	target := r.target(id)
	if err := Mount(ctx, Spec{Lower: lower, Dir: r.dir(id), Target: target, Label: label, Mapping: mappingOf(of)}); err != nil {
		return "", err
	}
	return target, nil
}

// MountImage mounts the layers of an image alone, read-only, for a mount of a
// container of that pod, and returns where. Unmount takes it away again. It is
// idempotent.
func (r *Roots) MountImage(ctx context.Context, of *pod.Record, v pod.VolumeRequest) (string, error) {
	if err := r.makeFolder(of, v.Container); err != nil {
		return "", err
	}
	at := r.mountTarget(v.Container, v.Index)
	s := Spec{Lower: v.Lower, Dir: r.dir(v.Container), Target: at, ReadOnly: true, Label: v.Label, Mapping: mappingOf(of)}
	return at, Mount(ctx, s)
}

// makeFolder makes the container's folder, closed to all but root and, where
// that is somebody else, the pod's root.
func (r *Roots) makeFolder(of *pod.Record, id pod.ContainerID) error {
	if err := checkID(id); err != nil {
		return err
	}
	folder := filepath.Dir(r.target(id))
	if err := os.MkdirAll(folder, userns.Closed); err != nil {
		return err
	}
	if of.Config.UserNamespace() == nil {
		return os.Chmod(folder, userns.Closed)
	}
	_, gid := of.Config.Root()
	return userns.Admit(folder, gid, r.state, filepath.Dir(folder))
}

// Unmount takes the container's root file system away, and what Map and
// MountImage have mounted for it. It is idempotent.
func (r *Roots) Unmount(ctx context.Context, id pod.ContainerID) error {
	if err := checkID(id); err != nil {
		return err
	}
	for _, at := range r.mounted(id) {
		if err := Unmount(ctx, at); err != nil {
			return err
		}
		if err := failpoint.Hit(volumeUnmounted); err != nil {
			return err
		}
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
// writable layer and the volumes that its image asks for, which begin with what
// the image has there.
func (r *Roots) Usage(ctx context.Context, id pod.ContainerID) (bytes, inodes int64, err error) {
	if err := checkID(id); err != nil {
		return 0, 0, err
	}
	return usage(ctx, filepath.Join(r.dir(id), "upper"), filepath.Join(r.dir(id), "volumes"))
}

// mountPrefix begins the names of what Map and MountImage mount, in the
// container's folder.
const mountPrefix = "mount-"

func (r *Roots) mountTarget(id pod.ContainerID, index int) string {
	return filepath.Join(filepath.Dir(r.target(id)), mountPrefix+strconv.Itoa(index))
}

// mounted are the places where Map and MountImage have mounted something for a
// container, or were about to.
func (r *Roots) mounted(id pod.ContainerID) (out []string) {
	entries, err := os.ReadDir(filepath.Dir(r.target(id)))
	if err != nil {
		return nil // none, or the folder is gone
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), mountPrefix) {
			out = append(out, filepath.Join(filepath.Dir(r.target(id)), e.Name()))
		}
	}
	return out
}

// LayerPath is a directory on the file system that writable layers are on: the
// root directory, unless their own folder is on another one.
func (r *Roots) LayerPath() string {
	own := filepath.Join(r.root, "containers")
	var above, below unix.Stat_t
	if unix.Stat(r.root, &above) == nil && unix.Stat(own, &below) == nil && above.Dev != below.Dev {
		return own
	}
	return filepath.Clean(r.root)
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
	mounted, err := r.mountsOfOthers(live)
	if err != nil {
		return nil, err
	}
	for _, id := range mounted {
		found[id] = true
	}
	var out []pod.ContainerID
	for id := range found {
		if !live[id] {
			out = append(out, id)
		}
	}
	return out, nil
}

// mountsOfOthers are the containers that are not in live and have something mounted in
// their folder. The kernel takes long to list its mounts, so it is only asked
// if there are such folders.
func (r *Roots) mountsOfOthers(live map[pod.ContainerID]bool) ([]pod.ContainerID, error) {
	base := filepath.Join(r.state, "containers")
	entries, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for mounts of lost containers: %w", err)
	}
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !live[pod.ContainerID(e.Name())] }) {
		return nil, nil
	}
	mounts, err := List(base)
	if err != nil {
		return nil, err
	}
	var out []pod.ContainerID
	for _, m := range mounts {
		if rest, ok := strings.CutPrefix(m, base+"/"); ok {
			id, _, _ := strings.Cut(rest, "/")
			out = append(out, pod.ContainerID(id))
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
