package image

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/documents"
)

// A label of image records. Only this package writes them; nothing that an
// image says about itself gets here.
const labelPlatform = "fairlead.run/platform" // the variant of an index that was unpacked

// loaded is what the blobs of an image say, without its names.
type loaded struct {
	image Image
}

func loadKey(rec images.Image) string {
	return rec.Target.Digest.String() + " " + rec.Labels[labelPlatform]
}

// load reads the image that a record points to and checks that it is complete.
func (s *Store) load(ctx context.Context, blobs content.Provider, rec images.Image) (*loaded, error) {
	ctx = s.with(ctx)
	matcher, err := s.matcher(rec.Labels[labelPlatform])
	if err != nil {
		return nil, err
	}
	size := rec.Target.Size
	desc := rec.Target
	for depth := 0; images.IsIndexType(desc.MediaType); depth++ {
		if depth == maxIndexes {
			return nil, errDeep
		}
		var idx ocispec.Index
		if err := documents.Read(ctx, blobs, desc, &idx); err != nil {
			return nil, err
		}
		if desc, err = documents.Select(idx.Manifests, matcher); err != nil {
			return nil, err
		}
		size += desc.Size
	}
	var m ocispec.Manifest
	if err := documents.Read(ctx, blobs, desc, &m); err != nil {
		return nil, err
	}
	config, err := documents.ReadConfig(ctx, blobs, m.Config)
	if err != nil {
		return nil, err
	}
	// The unpacker compares them only where there are layers.
	if got, want := len(m.Layers), len(config.RootFS.DiffIDs); got != want {
		return nil, fmt.Errorf("number of layers and diffIDs don't match: %d != %d: %w", got, want, errdefs.ErrInvalidArgument)
	}
	img := Image{
		ID: m.Config.Digest.String(), Config: config.Config, Platform: config.Platform,
		Annotations: m.Annotations, ChainID: chainOf(config.RootFS.DiffIDs), Layers: len(config.RootFS.DiffIDs),
	}
	if config.Created != nil {
		img.Created = *config.Created
	}
	img.Size = size + m.Config.Size
	for _, l := range m.Layers {
		img.Size += l.Size
	}
	// The directories stay right for as long as the image is listed: they are
	// removed only after its last record, and a later pull loads it anew.
	var unpacked int64
	if img.dirs, unpacked, err = s.stack(ctx, img.ChainID); err != nil {
		return nil, err
	}
	img.Size += unpacked
	return &loaded{image: img}, nil
}

// matcher turns a platform, or "" for this node's, into what selects manifests.
func (s *Store) matcher(platform string) (platforms.MatchComparer, error) {
	if platform == "" {
		platform = s.cfg.Platform
	}
	p, err := platforms.Parse(platform)
	if err != nil {
		return nil, fmt.Errorf("platform %q, want OS/architecture as in linux/arm64: %w", platform, errdefs.ErrInvalidArgument)
	}
	return platforms.Only(p), nil
}
