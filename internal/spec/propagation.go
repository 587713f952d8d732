package spec

import (
	"context"
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/pod"
)

// propagation is the option for a mount, after a look whether its source can
// have it: asked of a mount that is not shared, the kernel would quietly give
// nothing. The root of the container has to let pass what one mount lets pass.
func (b *build) propagation(ctx context.Context, field, source string, m pod.Mount) (string, error) {
	switch m.Propagation {
	case pod.PropagationPrivate:
		return "rprivate", nil
	case pod.PropagationHostToContainer:
		if err := propagates(ctx, source, "shared:", "master:"); err != nil {
			return "", fmt.Errorf("%s.propagation HostToContainer of host_path %s: %w", field, m.HostPath, err)
		}
		if b.spec.Linux.RootfsPropagation == "" {
			b.spec.Linux.RootfsPropagation = "rslave"
		}
		return "rslave", nil
	case pod.PropagationBidirectional:
		if err := propagates(ctx, source, "shared:"); err != nil {
			return "", fmt.Errorf("%s.propagation Bidirectional of host_path %s: %w", field, m.HostPath, err)
		}
		b.spec.Linux.RootfsPropagation = "rshared"
		return "rshared", nil
	}
	return "", invalid(field+".propagation", "%q is not known", m.Propagation)
}

// propagates says no unless the mount that holds source has one of the tags.
func propagates(ctx context.Context, source string, tags ...string) error {
	info, err := hostpath.Look(ctx, source, func() (*mountinfo.Info, error) { return mountOf(source) })
	if err != nil {
		return err
	}
	for opt := range strings.FieldsSeq(info.Optional) {
		for _, t := range tags {
			if strings.HasPrefix(opt, t) {
				return nil
			}
		}
	}
	return fmt.Errorf("it is on the mount %s, which is not %s; \"mount --make-rshared %s\" would change that: %w",
		info.Mountpoint, describeTags(tags), info.Mountpoint, errdefs.ErrInvalidArgument)
}

func describeTags(tags []string) string {
	if len(tags) > 1 {
		return "shared or a slave"
	}
	return "shared"
}

// mountOf is the mount that a path is on. Its id, which the kernel tells, is
// right even where one mount covers another.
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
