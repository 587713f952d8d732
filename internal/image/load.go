package image

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/errdefs"
)

// Labels of image records. Only this package writes them; nothing that an
// image says about itself gets here.
const (
	labelPlatform = "fairlead.run/platform" // the variant of an index that was unpacked
	labelPinned   = "fairlead.run/pinned"
)

// Sizes in bytes above which documents are refused. Real ones are a few KiB.
const (
	maxManifest = 4 << 20
	maxConfig   = 4 << 20
	maxUser     = 1 << 10 // of the user and the group in a configuration
)

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
		if err := readDocument(ctx, blobs, desc, &idx); err != nil {
			return nil, err
		}
		if desc, err = selectManifest(idx.Manifests, matcher); err != nil {
			return nil, err
		}
		size += desc.Size
	}
	var m ocispec.Manifest
	if err := readDocument(ctx, blobs, desc, &m); err != nil {
		return nil, err
	}
	config, err := readConfig(ctx, blobs, m.Config)
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

// readConfig reads the configuration of an image.
func readConfig(ctx context.Context, blobs content.Provider, desc ocispec.Descriptor) (ocispec.Image, error) {
	var config ocispec.Image
	if err := readDocument(ctx, blobs, desc, &config); err != nil {
		return config, err
	}
	if n := len(config.Config.User); n > maxUser { // every list of images has it
		return config, fmt.Errorf("configuration %s has a user of %d bytes, the limit is %d: %w", desc.Digest, n, maxUser, errdefs.ErrInvalidArgument)
	}
	for _, d := range config.RootFS.DiffIDs {
		if err := d.Validate(); err != nil {
			return config, fmt.Errorf("configuration %s has the diff id %.100q: %w: %w", desc.Digest, d, err, errdefs.ErrInvalidArgument)
		}
	}
	return config, nil
}

// readDocument reads a JSON blob of bounded size.
func readDocument(ctx context.Context, blobs content.Provider, desc ocispec.Descriptor, into any) error {
	if err := checkDocumentSize(desc); err != nil {
		return err
	}
	b, err := content.ReadBlob(ctx, blobs, ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, describeLocal(err))
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s is not the JSON document that it should be: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

func checkDocumentSize(desc ocispec.Descriptor) error {
	limit := int64(maxManifest)
	if images.IsConfigType(desc.MediaType) {
		limit = maxConfig
	}
	if desc.Size < 0 || desc.Size > limit {
		return fmt.Errorf("%s (%s) has %d bytes, the limit is %d: %w", desc.Digest, desc.MediaType, desc.Size, limit, errdefs.ErrInvalidArgument)
	}
	return nil
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

// selectManifest picks the best variant out of an index. Variants without a
// platform fit every node, but only if nothing better is there.
func selectManifest(all []ocispec.Descriptor, m platforms.MatchComparer) (ocispec.Descriptor, error) {
	var fit []ocispec.Descriptor
	var offered []string
	for _, d := range all {
		if !images.IsManifestType(d.MediaType) && !images.IsIndexType(d.MediaType) {
			continue
		}
		if d.Platform == nil || m.Match(*d.Platform) {
			fit = append(fit, d)
		}
		if d.Platform != nil && d.Platform.OS != "unknown" { // "unknown" marks attestations
			offered = append(offered, platforms.Format(*d.Platform))
		}
	}
	if len(fit) == 0 {
		return ocispec.Descriptor{}, &platformError{offered: offered}
	}
	sort.SliceStable(fit, func(i, j int) bool {
		a, b := fit[i].Platform, fit[j].Platform
		if a == nil || b == nil {
			return a != nil
		}
		return m.Less(*a, *b)
	})
	return fit[0], nil
}

// platformError says that an index has no variant for the wanted platform.
type platformError struct{ offered []string }

func (e *platformError) Error() string {
	if len(e.offered) == 0 {
		return "the index names no image"
	}
	return "there are variants for " + strings.Join(e.offered, ", ") + " only"
}

func (e *platformError) Unwrap() error { return errdefs.ErrNotFound }
