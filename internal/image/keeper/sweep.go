package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/opencontainers/go-digest"
)

// DropLost forgets blobs whose files somebody has deleted or cut. As long
// as they are on record, no pull would fetch them again.
func DropLost(ctx context.Context, records content.Store, dir string, log *slog.Logger) error {
	var lost []digest.Digest
	err := records.Walk(ctx, func(i content.Info) error {
		path := filepath.Join(dir, "blobs", i.Digest.Algorithm().String(), i.Digest.Encoded())
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
		log.WarnContext(ctx, "blob is lost or cut short; images that need it have to be pulled again", "digest", d.String())
		if err := records.Delete(ctx, d); err != nil {
			return fmt.Errorf("forget lost blob %s: %w", d, err)
		}
	}
	return nil
}

// DropUnknown deletes files that no record is about.
func DropUnknown(ctx context.Context, records, files content.Store) error {
	known := map[digest.Digest]bool{}
	err := records.Walk(ctx, func(i content.Info) error {
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
