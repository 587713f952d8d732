package hostpath

import (
	"context"
	"fmt"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// MountOf returns the mount that a path is on.
func MountOf(ctx context.Context, path string) (*mountinfo.Info, error) {
	return Look(ctx, path, func() (*mountinfo.Info, error) { return mountOf(path) })
}

// mountOf goes by the mount's id, which the kernel tells: it is right even where
// one mount covers another.
func mountOf(p string) (*mountinfo.Info, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, p, 0, unix.STATX_MNT_ID, &st); err != nil {
		return nil, fmt.Errorf("look for the mount of %s: %w", p, err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return nil, fmt.Errorf("look for the mount of %s: this kernel does not tell (Linux 5.8 does): %w", p, errdefs.ErrUnimplemented)
	}
	found, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		is := uint64(i.ID) == st.Mnt_id
		return !is, is
	})
	if err != nil {
		return nil, fmt.Errorf("read the mounts of this process: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("look for the mount of %s: it went away meanwhile: %w", p, errdefs.ErrUnavailable)
	}
	return found[0], nil
}
