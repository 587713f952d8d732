package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
)

var foldersMade = failpoint.Register("rootfs.folders-made")

// Spec says what to mount where. All paths are absolute.
type Spec struct {
	Lower  []string // directories of the layers, topmost first; at least one
	Dir    string   // holds the writable layer and overlay's scratch space
	Target string   // where the result is mounted; made if it is missing
	// ReadOnly mounts the layers alone, for volumes of images. A container
	// with a read-only root still gets a writable mount: the OCI runtime has to
	// make mount points in it before it closes it.
	ReadOnly bool
	// Label, if set, is the SELinux label of every file that is seen in the
	// mount, whatever the files of the layers have.
	Label   string
	Mapping *Mapping // nil leaves owners as they are
	trial   bool     // for a look at the kernel, which passes no failpoint
}

func (s Spec) validate() error {
	if len(s.Lower) == 0 {
		return fmt.Errorf("no layers given: %w", errdefs.ErrInvalidArgument)
	}
	for _, p := range append([]string{s.Dir, s.Target}, s.Lower...) {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("path %q is not absolute: %w", p, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// Mount mounts a root file system, or an image alone. If the target is mounted already, nothing is
// done. After a failure nothing is mounted; the directories may exist.
func Mount(ctx context.Context, s Spec) error {
	if err := s.validate(); err != nil {
		return fmt.Errorf("mount %s on %s: %w", s.what(), s.Target, err)
	}
	if err := s.mount(ctx); err != nil {
		return fmt.Errorf("mount %s on %s: %w", s.what(), s.Target, explain(s, err))
	}
	return nil
}

func (s Spec) what() string {
	if s.ReadOnly {
		return "an image"
	}
	return "root file system"
}

func (s Spec) mount(ctx context.Context) error {
	if err := os.MkdirAll(s.Target, 0o755); err != nil {
		return err
	}
	mounted, err := isMounted(s.Target)
	if err != nil || mounted {
		return err
	}
	l := layers{lower: s.Lower, label: s.Label}
	if s.ReadOnly {
		l.lower, err = s.readOnlyLower()
	} else {
		l.upper, l.work, err = s.writable()
	}
	if err == nil && !s.trial {
		err = failpoint.Hit(foldersMade)
	}
	if err != nil {
		return err
	}
	if s.Mapping != nil {
		err = l.mountMapped(s.Target, s.Mapping.UserNS)
	} else {
		err = l.mountAny(s.Target)
	}
	if err != nil || s.ReadOnly {
		return err
	}
	return l.checkWritable(ctx, s.Target)
}

// checkWritable takes a mount away that cannot be written to: overlay makes one where it
// finds no room for its scratch space, and tells nobody but the kernel's log.
func (l layers) checkWritable(ctx context.Context, target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: target, Err: err}
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	scratch := filepath.Join(l.work, "work")
	err := os.Mkdir(scratch, 0o700) // fails as it has for overlay, unless there is room by now
	if err == nil {
		err = &fs.PathError{Op: "mkdir", Path: scratch, Err: unix.ENOSPC}
	}
	return errors.Join(err, Unmount(ctx, target))
}

// writable makes the directory that the container's changes go to, with the
// owner and mode that the image's own root has, and fresh scratch space.
func (s Spec) writable() (upper, work string, err error) {
	upper, work = filepath.Join(s.Dir, "upper"), filepath.Join(s.Dir, "work")
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", "", err
	}
	switch err := os.Mkdir(upper, 0o755); {
	case errors.Is(err, fs.ErrExist):
	case err != nil:
		return "", "", err
	default:
		if err := copyOwner(upper, s.Lower[0], s.Mapping); err != nil {
			return "", "", err
		}
	}
	err = os.Mkdir(work, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// An earlier mount was volatile, and left a mark there that forbids
		// another one: after a power cut the upper directory could be torn. But
		// records of containers do not outlive a boot, so whoever mounts again
		// does so in the same boot, and all that was written is still there.
		if err = os.RemoveAll(work); err == nil {
			err = os.Mkdir(work, 0o700)
		}
	}
	return upper, work, err
}

// readOnlyLower is a list that overlay accepts without a writable layer: it
// wants two at least.
func (s Spec) readOnlyLower() ([]string, error) {
	if len(s.Lower) > 1 {
		return s.Lower, nil
	}
	empty := filepath.Join(s.Dir, "empty")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		return nil, err
	}
	return []string{s.Lower[0], empty}, nil
}

func copyOwner(to, from string, m *Mapping) error {
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	uid, gid := m.owner(st.Uid, st.Gid)
	if err := os.Chown(to, uid, gid); err != nil {
		return err
	}
	if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: to, Err: err}
	}
	return nil
}

// isMounted says whether something is mounted on the path.
func isMounted(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	targets, err := List(path) // Linux before 5.8
	return len(targets) > 0, err
}

// Unmount takes a root file system away. If it is in use it disappears from
// the path at once and for good when the last user is gone. A path that is not
// mounted, or does not exist, is no error.
func Unmount(_ context.Context, target string) error {
	for {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return fmt.Errorf("unmount root file system %s: %w", target, err)
		}
	}
}
