package keeper

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"fairlead.run/internal/pod"
)

// state is what the metadata say, for an audit.
type state struct {
	records []images.Image
	blobs   map[digest.Digest]content.Info
	parents map[string]string      // of layers, by key
	used    map[digest.Digest]bool // configurations of images that containers use
	leased  map[string]bool        // layers
	kept    map[digest.Digest]bool // blobs that leases keep
}

// read takes the metadata, and what containers use, into memory.
func (k Keeper) read(ctx context.Context, records []*pod.Record) (*state, error) {
	out := &state{
		blobs: map[digest.Digest]content.Info{}, parents: map[string]string{},
		used: map[digest.Digest]bool{}, leased: map[string]bool{}, kept: map[digest.Digest]bool{},
	}
	var err error
	if out.records, err = k.cfg.Images.List(ctx); err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	err = k.cfg.Content.Walk(ctx, func(i content.Info) error {
		out.blobs[i.Digest] = i
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	err = k.cfg.Snapshots.Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		out.parents[i.Name] = i.Parent
		return nil
	})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	out.note(k, records)
	return out, k.readLeases(ctx, out)
}

// note takes what containers use, by what they said and by their records.
func (t *state) note(k Keeper, records []*pod.Record) {
	uses, _ := k.cfg.Store.Uses()
	use := func(ids []string) {
		for _, id := range ids {
			t.used[imageID(id)] = true
		}
	}
	for _, ids := range uses {
		use(ids)
	}
	for _, r := range records {
		for _, c := range r.Containers {
			use(c.Images())
		}
	}
}

// imageID is the digest of an image's configuration.
func imageID(s string) digest.Digest {
	return digest.NewDigestFromEncoded(digest.SHA256, strings.TrimPrefix(s, "sha256:"))
}

func (k Keeper) readLeases(ctx context.Context, t *state) error {
	all, err := k.cfg.Leases.List(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, l := range all {
		kept, err := k.cfg.Leases.ListResources(ctx, l)
		if cerrdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list what lease %s keeps: %w", l.ID, err)
		}
		for _, r := range kept {
			if strings.HasPrefix(r.Type, "snapshots/") {
				t.leased[r.ID] = true
			} else {
				t.kept[digest.Digest(r.ID)] = true
			}
		}
	}
	return nil
}

// reach is what images, containers and leases lead to.
func (t *state) reach() (blobs map[digest.Digest]bool, layers map[string]bool) {
	blobs, layers = map[digest.Digest]bool{}, map[string]bool{}
	layer := func(key string) {
		for ; key != "" && !layers[key]; key = t.parents[key] {
			layers[key] = true
		}
	}
	var blob func(digest.Digest)
	blob = func(d digest.Digest) {
		if blobs[d] {
			return
		}
		blobs[d] = true
		below, keys := references(t.blobs[d].Labels)
		for _, k := range keys {
			layer(k)
		}
		for _, b := range below {
			blob(b)
		}
	}
	for _, rec := range t.records {
		blob(rec.Target.Digest)
	}
	for _, set := range []map[digest.Digest]bool{t.used, t.kept} {
		for d := range set {
			blob(d)
		}
	}
	for key := range t.leased {
		layer(key)
	}
	return blobs, layers
}

// The labels by which containerd's collector goes from one thing to the next.
const (
	refContent  = "containerd.io/gc.ref.content"
	refSnapshot = "containerd.io/gc.ref.snapshot."
)

// references are the blobs and layers that a blob's labels lead on to.
func references(labels map[string]string) (blobs []digest.Digest, layers []string) {
	for name, value := range labels {
		switch {
		case strings.HasPrefix(name, refContent):
			blobs = append(blobs, digest.Digest(value))
		case strings.HasPrefix(name, refSnapshot):
			layers = append(layers, value)
		}
	}
	return blobs, layers
}
