package image

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/snapshots"
	cerrdefs "github.com/containerd/errdefs"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/fault"
	"fairlead.run/internal/image/keeper"
)

var (
	leasesDropped = failpoint.Register("image.leases-dropped")
	swept         = failpoint.Register("image.swept")
)

// sweep makes files and records agree again after a process was killed between
// writing one and the other. It runs before anything else does: whatever is
// not on record then belongs to nobody.
func (s *Store) sweep(ctx context.Context) error {
	if err := s.files.Clear(); err != nil {
		return err
	}
	if err := keeper.DropLost(ctx, s.content(), s.contentDir(), s.log); err != nil {
		return err
	}
	if err := keeper.DropUnknown(ctx, s.content(), s.files); err != nil {
		return err
	}
	if c, ok := s.overlay.(snapshots.Cleaner); ok {
		if err := c.Cleanup(ctx); err != nil && !fault.IsNotFound(err) { // not found: no layer yet
			return fmt.Errorf("remove layers that are not on record: %w", err)
		}
	}
	return nil
}

// noticeStrays looks for layers that the snapshotter knows and the metadata
// does not: a kill between their two commits leaves such. If there are any, it
// makes the next collection look at the layers, which it does not do where it
// removes none itself.
func (s *Store) noticeStrays(ctx context.Context) (bool, error) {
	ctx = s.with(ctx)
	var onDisk, onRecord int
	count := func(n *int) snapshots.WalkFunc {
		return func(context.Context, snapshots.Info) error { *n++; return nil }
	}
	if err := s.overlay.Walk(ctx, count(&onDisk)); err != nil && !fault.IsNotFound(err) {
		return false, fmt.Errorf("count layers: %w", err)
	}
	if err := s.snapshots().Walk(ctx, count(&onRecord)); err != nil {
		return false, fmt.Errorf("count layers: %w", err)
	}
	if onDisk == onRecord {
		return false, nil
	}
	const key = "stray-notice" // a removal is what the collection takes notice of
	if _, err := s.snapshots().Prepare(ctx, key, ""); err != nil && !cerrdefs.IsAlreadyExists(err) {
		return false, fmt.Errorf("mark layers for collection: %w", fault.Local(err))
	}
	if err := s.snapshots().Remove(ctx, key); err != nil && !fault.IsNotFound(err) {
		return false, fmt.Errorf("mark layers for collection: %w", fault.Local(err))
	}
	return true, nil
}
