package spec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/mapping"
	"fairlead.run/internal/userns"
)

// userNamespace joins the pod's. The mappings are those of the namespace, and
// said once more because runtimes look for them here.
func (b *build) userNamespace() error {
	u := b.pod().UserNamespace()
	if u == nil {
		return nil
	}
	b.spec.Linux.UIDMappings, b.spec.Linux.GIDMappings = mapping.OCI(u.UIDs), mapping.OCI(u.GIDs)
	return b.join(specs.UserNamespace, b.req.Record.Sandbox.UserNS)
}

// mapped is where the source of a mount is seen with mapped owners. It does not
// leave that to the runtime, because not all can.
func (b *build) mapped(ctx context.Context, index int, source string, m pod.Mount) (string, error) {
	if len(m.UIDMappings) == 0 {
		return source, nil
	}
	if b.cfg.Map == nil {
		return "", fmt.Errorf("nobody maps owners here: %w", errdefs.ErrInternal)
	}
	return b.cfg.Map(ctx, pod.MapRequest{
		Container: b.req.Container.ID, Index: index, Source: source, UserNS: b.req.Record.Sandbox.UserNS,
		Follow: m.Propagation == pod.PropagationHostToContainer,
	})
}

// makeFolder makes the bundle's folder.
func (b *build) makeFolder(dir string) error {
	if err := os.MkdirAll(dir, userns.Closed); err != nil {
		return err
	}
	if b.pod().UserNamespace() == nil {
		return os.Chmod(dir, userns.Closed)
	}
	_, gid := b.pod().Root()
	return userns.Admit(dir, gid, b.cfg.StateDir, filepath.Dir(dir))
}
