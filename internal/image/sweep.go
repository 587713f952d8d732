package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"fairlead.run/internal/failpoint"
)

var (
	leasesDropped = failpoint.Register("image.leases-dropped")
	swept         = failpoint.Register("image.swept")
)

// sweep makes files and records agree again after a process was killed between
// writing one and the other. It runs before anything else does: whatever is
// not on record then belongs to nobody.
func (s *Store) sweep(ctx context.Context, files content.Store) error {
	// Nobody takes up a download of an earlier process.
	if err := os.RemoveAll(filepath.Join(s.contentDir(), "ingest")); err != nil {
		return fmt.Errorf("remove broken downloads: %w", err)
	}
	if err := s.dropLostBlobs(ctx); err != nil {
		return err
	}
	if err := s.dropUnknownBlobs(ctx, files); err != nil {
		return err
	}
	if c, ok := s.overlay.(snapshots.Cleaner); ok {
		if err := c.Cleanup(ctx); err != nil && !isNotFound(err) { // not found: no layer yet
			return fmt.Errorf("remove layers that are not on record: %w", err)
		}
	}
	return nil
}

// dropLostBlobs forgets blobs whose files somebody has deleted or cut. As long
// as they are on record, no pull would fetch them again.
func (s *Store) dropLostBlobs(ctx context.Context) error {
	var lost []digest.Digest
	err := s.content().Walk(ctx, func(i content.Info) error {
		path := filepath.Join(s.contentDir(), "blobs", i.Digest.Algorithm().String(), i.Digest.Encoded())
		info, err := os.Stat(path)
		if err == nil && info.Size() == i.Size {
			return nil
		}
		if err == nil { // it would be taken for the whole one
			err = os.Remove(path)
		}
		lost = append(lost, i.Digest)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look for lost blobs: %w", err)
	}
	for _, d := range lost {
		s.log.WarnContext(ctx, "blob is lost or cut short; images that need it have to be pulled again", "digest", d.String())
		if err := s.content().Delete(ctx, d); err != nil {
			return fmt.Errorf("forget lost blob %s: %w", d, err)
		}
	}
	return nil
}

// dropUnknownBlobs deletes files that no record is about.
func (s *Store) dropUnknownBlobs(ctx context.Context, files content.Store) error {
	known := map[digest.Digest]bool{}
	err := s.content().Walk(ctx, func(i content.Info) error {
		known[i.Digest] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	var unknown []digest.Digest
	err = files.Walk(ctx, func(i content.Info) error {
		if !known[i.Digest] {
			unknown = append(unknown, i.Digest)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for blobs that are not on record: %w", err)
	}
	for _, d := range unknown {
		if err := files.Delete(ctx, d); err != nil {
			return fmt.Errorf("remove blob %s: %w", d, err)
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
	if err := s.overlay.Walk(ctx, count(&onDisk)); err != nil && !isNotFound(err) {
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
		return false, fmt.Errorf("mark layers for collection: %w", describeLocal(err))
	}
	if err := s.snapshots().Remove(ctx, key); err != nil && !isNotFound(err) {
		return false, fmt.Errorf("mark layers for collection: %w", describeLocal(err))
	}
	return true, nil
}
