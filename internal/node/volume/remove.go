package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/volume/tree"
)

// Remove takes the volumes of a pod away: what CSI drivers have mounted, then
// every mount below its folders, then the folders. It goes by what is there, not by
// what was made, and may be called again until it succeeds. Nothing is deleted while
// something is mounted, because that may be the host's own data.
func Remove(ctx context.Context, dirs Dirs, plugin Plugin) error {
	if err := Release(ctx, dirs, plugin); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	for _, dir := range dirs.all() {
		if err := unmountBelow(dir); err != nil {
			return fmt.Errorf("remove volumes: %w", err)
		}
	}
	var errs []error
	for _, dir := range dirs.all() {
		if err := deleteTree(ctx, dir); err != nil {
			errs = append(errs, fmt.Errorf("remove volumes: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Discard takes the volumes away that are the pod's own, with all that is in them, once
// nothing of it runs any more: a pod that was evicted because of its emptyDir gives the
// disk back, though its object stays. What CSI drivers have mounted stays, and so do logs.
// It may be called again until it succeeds.
func Discard(ctx context.Context, dirs Dirs) error {
	var errs []error
	for _, dir := range []string{subPaths(dirs), filepath.Join(dirs.Memory, volumesFolder), filepath.Join(dirs.Disk, volumesFolder)} {
		err := unmountBelow(dir)
		if err == nil {
			err = deleteTree(ctx, dir)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("discard volumes: %w", err))
		}
	}
	return errors.Join(errs...)
}

// rounds bounds how often something is looked at again that others change
// meanwhile, as a container does that still runs.
const rounds = 4

// unmountBelow unmounts a folder and everything below it, without looking at what
// is mounted: it may hang. Each mount is made private first. Otherwise unmounting
// what is below a copy of a host's folder would unmount the original, too.
func unmountBelow(dir string) error {
	if dir == "" {
		return fmt.Errorf("no folder is given: %w", errdefs.ErrInternal)
	}
	if _, err := os.Lstat(filepath.Dir(dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return err
	}
	real := filepath.Join(parent, filepath.Base(dir))
	for range rounds {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
		if err != nil {
			return fmt.Errorf("list mounts: %w", err)
		}
		if len(mounts) == 0 {
			return nil
		}
		for _, m := range mounts {
			_ = unix.Mount("", m.Mountpoint, "", unix.MS_PRIVATE, "")
		}
		for i := len(mounts) - 1; i >= 0; i-- { // the newest first
			err := unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("unmount %s: %w", mounts[i].Mountpoint, err)
			}
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil || len(mounts) > 0 {
		return errors.Join(err, fmt.Errorf("%s still holds mounts: %w", real, errdefs.ErrPrecondition))
	}
	return nil
}

// deleteTree deletes a folder. It never goes into a mount, even one that has come
// since the last look. What is too deep in it is brought up first, where the next round
// finds it: containers can make any depth.
func deleteTree(ctx context.Context, dir string) error {
	raised := false
	w := &tree.Walk{
		Visit: func(n *tree.Node) error { return unlink(n, dir) },
		Foreign: func(_ int, name string) error {
			return fmt.Errorf("something is mounted on %s: %w", name, errdefs.ErrPrecondition)
		},
		Deep: func(n *tree.Node) error {
			err := raise(n, dir)
			raised = raised || err == nil
			return err
		},
	}
	var err error
	for left := rounds; left > 0; left-- {
		raised = false
		if err = w.Run(ctx, dir); !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		if raised {
			left = rounds + 1 // there is less of it
		}
	}
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// raise moves a folder to the top of what is deleted. No other one has its inode, nor so the
// name.
func raise(n *tree.Node, top string) error {
	to := filepath.Join(top, fmt.Sprintf(".deep-%d", n.Stat.Ino))
	if err := unix.Renameat(n.Parent, n.Name, unix.AT_FDCWD, to); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "bring up", Path: n.Name, Err: err}
	}
	return nil
}

func unlink(n *tree.Node, top string) error {
	parent, name, flags := n.Parent, n.Name, 0
	if parent < 0 {
		parent, name = unix.AT_FDCWD, top
	}
	if n.IsDir() {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(parent, name, flags); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}
