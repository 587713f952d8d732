package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/volume/group"
)

// setGroup gives a volume to the pod's group, if it names one, and if it may be given. A nil may is
// that it is.
func (s *Set) setGroup(ctx context.Context, m *mounted, may func(context.Context) (bool, error)) error {
	g := s.group()
	if g == nil {
		return nil
	}
	c := group.Change{Group: int(*g), ReadOnly: m.readOnly, Limit: s.around.Limit, May: may}
	if s.around.Progress != nil {
		c.Tell = func(files int) { s.around.Progress(m.path, files) }
	}
	if p := s.spec.Pod.Spec.SecurityContext.FSGroupChangePolicy; p != nil {
		c.OnMismatch = *p == corev1.FSGroupChangeOnRootMismatch
	}
	refused, err := c.Give(ctx, m.path)
	if err != nil {
		return err
	}
	delete(s.refused, m.path)
	if refused.Files > 0 {
		s.refused[m.path] = fmt.Errorf("%d files of %s could not be given to group %d (fsGroup) with its rights, the first of them: %w", refused.Files, m.path, *g, refused.First)
	}
	return nil
}

// giveAgain is how long a volume may take to be given to a group that has it already.
const giveAgain = 5 * time.Second

// give gives a volume to the pod's group that is to be. Where a sandbox is there, that was done
// before it was made; files that a driver has written since are seen to, and a large volume does
// not hold up containers that run.
func (s *Set) give(ctx context.Context, m *mounted) error {
	var may func(context.Context) (bool, error)
	switch {
	case m.local != nil:
		may = func(ctx context.Context) (bool, error) { return s.mayGive(ctx, m) }
	case !m.give:
		return nil
	}
	if m.local != nil && s.group() == nil {
		_, err := may(ctx)
		return err
	}
	if s.around.Runs {
		within, cancel := context.WithTimeout(ctx, giveAgain)
		defer cancel()
		if err := s.setGroup(within, m, may); err != nil && within.Err() == nil {
			s.refused[m.path] = err
		}
		return ctx.Err()
	}
	return s.setGroup(ctx, m, may)
}

// Refused is what the file systems of volumes did not let the pod's group have. The pod has
// them all the same, as a server may let its users in by other rules: NFS that squashes root,
// or snapshots that are always read-only.
func (s *Set) Refused() error { return errors.Join(slices.Collect(maps.Values(s.refused))...) }
