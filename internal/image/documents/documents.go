// Package documents reads the small documents of an image, which are not trusted:
// manifests, indexes and configurations. Layers are internal/image/layer's.
package documents

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
	"fairlead.run/internal/image/fault"
)

// MaxManifest is the size in bytes above which manifests and indexes are
// refused. Real ones are a few KiB.
const MaxManifest = 4 << 20

const (
	maxConfig = 4 << 20
	maxUser   = 1 << 10 // of the user and the group in a configuration
)

// ReadConfig reads the configuration of an image.
func ReadConfig(ctx context.Context, blobs content.Provider, desc ocispec.Descriptor) (ocispec.Image, error) {
	var config ocispec.Image
	if err := Read(ctx, blobs, desc, &config); err != nil {
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

// Read reads a JSON blob of bounded size.
func Read(ctx context.Context, blobs content.Provider, desc ocispec.Descriptor, into any) error {
	if err := CheckSize(desc); err != nil {
		return err
	}
	b, err := content.ReadBlob(ctx, blobs, ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, fault.Local(err))
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s is not the JSON document that it should be: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// CheckSize refuses a document that is too large to be read.
func CheckSize(desc ocispec.Descriptor) error {
	limit := int64(MaxManifest)
	if images.IsConfigType(desc.MediaType) {
		limit = maxConfig
	}
	if desc.Size < 0 || desc.Size > limit {
		return fmt.Errorf("%s (%s) has %d bytes, the limit is %d: %w", desc.Digest, desc.MediaType, desc.Size, limit, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Select picks the best variant out of an index. Variants without a
// platform fit every node, but only if nothing better is there.
func Select(all []ocispec.Descriptor, m platforms.MatchComparer) (ocispec.Descriptor, error) {
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
		return ocispec.Descriptor{}, &NoPlatformError{offered: offered}
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

// NoPlatformError says that an index has no variant for the wanted platform.
type NoPlatformError struct{ offered []string }

// Error names the variants that there are.
func (e *NoPlatformError) Error() string {
	if len(e.offered) == 0 {
		return "the index names no image"
	}
	return "there are variants for " + strings.Join(e.offered, ", ") + " only"
}

// Unwrap returns the kind of error.
func (e *NoPlatformError) Unwrap() error { return errdefs.ErrNotFound }
