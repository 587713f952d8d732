package image

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"

	"fairlead.run/internal/image/fault"
)

// Usage is what all images take on disk.
type Usage struct {
	Path   string // a directory on the file system that they are on
	Bytes  int64
	Inodes int64
}

// Usage adds up blobs and layers, each once. It reads the records only: the
// disk is not walked.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	ctx = s.with(ctx)
	u := Usage{Path: s.cfg.Root}
	err := s.content().Walk(ctx, func(i content.Info) error {
		u.Bytes += i.Size
		u.Inodes++
		return nil
	})
	if err != nil {
		return Usage{}, fmt.Errorf("measure image blobs: %w", fault.Local(err))
	}
	err = s.snapshots().Walk(ctx, func(ctx context.Context, i snapshots.Info) error {
		if i.Kind != snapshots.KindCommitted {
			return nil // being unpacked; measuring it would walk it
		}
		su, err := s.snapshots().Usage(ctx, i.Name)
		if fault.IsNotFound(err) {
			return nil // removed meanwhile
		}
		u.Bytes += su.Size
		u.Inodes += su.Inodes
		return err
	})
	if err != nil {
		return Usage{}, fmt.Errorf("measure image layers: %w", fault.Local(err))
	}
	return u, nil
}
