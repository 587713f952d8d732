package spec

import (
	"context"
	"fmt"
	"strings"

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
		if b.pod().UserNamespace() != nil {
			return "", invalid(field+".propagation", "is Bidirectional, and the pod has a user namespace; the kernel lets no mount out of that")
		}
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
	info, err := hostpath.MountOf(ctx, source)
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
