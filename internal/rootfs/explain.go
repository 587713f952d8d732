package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// fileSystems that cannot hold a writable layer, by statfs's magic number.
var unfit = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.V9FS_MAGIC:            "9p",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	unix.MSDOS_SUPER_MAGIC:     "vfat",
	unix.ECRYPTFS_SUPER_MAGIC:  "ecryptfs",
}

// CheckDir says whether writable layers can be kept in the directory, which
// has to exist. Call it once at start, so that the first container does not
// have to find out.
func CheckDir(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	if name, bad := unfit[int64(st.Type)]; bad {
		return fmt.Errorf("%s is on a file system of type %s, which overlay cannot write to; "+
			"put the root directory (--root) on ext4, xfs, btrfs or tmpfs, in a container for instance on a volume: %w",
			dir, name, errdefs.ErrPrecondition)
	}
	return nil
}

// explain adds what to do to an error of mount that the kernel gives no more
// than a number for.
func explain(s Spec, err error) error {
	switch {
	case errors.Is(err, unix.EINVAL) && !s.ReadOnly:
		if derr := CheckDir(s.Dir); derr != nil {
			return derr
		}
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w; mounting needs root with CAP_SYS_ADMIN", err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w; this kernel has no overlay file system (modprobe overlay)", err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w; a layer of the image is gone from the disk; remove the image and pull it again", err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", err, errdefs.ErrExhausted)
	}
	return err
}
