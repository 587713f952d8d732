package image

import (
	"context"
	"slices"

	"github.com/containerd/containerd/v2/core/images"

	"fairlead.run/internal/image/keeper"
)

// Keeper is the side of the store that an audit looks at. With verifyContent
// it reads every blob.
func (s *Store) Keeper(verifyContent bool) keeper.Keeper {
	return keeper.New(keeper.Config{
		Store: audited{s}, Content: s.content(), Images: s.images(), Leases: s.leases,
		Snapshots: s.snapshots(), Unpacked: s.overlay,
		ContentDir: s.contentDir(), LayerDir: s.snapshotDir(), VerifyContent: verifyContent,
	})
}

// audited is the store as a keeper asks it.
type audited struct{ s *Store }

// Context implements keeper.Store.
func (a audited) Context(ctx context.Context) context.Context { return a.s.with(ctx) }

// Load implements keeper.Store.
func (a audited) Load(ctx context.Context, rec images.Image) ([]string, error) {
	l, err := a.s.load(ctx, a.s.content(), rec)
	if err != nil {
		return nil, err
	}
	return l.image.dirs, nil
}

// Uses implements keeper.Store.
func (a audited) Uses() (map[string][]string, bool) {
	u := &a.s.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make(map[string][]string, len(u.images))
	for by, ids := range u.images {
		out[by] = slices.Clone(ids)
	}
	return out, u.synced
}

// Keep implements keeper.Store.
func (a audited) Keep(ctx context.Context, image, container string) error {
	_, err := a.s.Use(ctx, image, container)
	return err
}

// Free implements keeper.Store.
func (a audited) Free(ctx context.Context, container string) error {
	return a.s.Release(ctx, container)
}

// Collect implements keeper.Store.
func (a audited) Collect(ctx context.Context) error { return a.s.collect(ctx) }

// Leased implements keeper.Store.
func (a audited) Leased() *keeper.Leases { return &a.s.held }
