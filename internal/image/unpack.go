package image

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/unpack"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/documents"
	"fairlead.run/internal/image/layer"
	"fairlead.run/internal/image/progress"
)

// unpackJob is an image that is to become blobs and layers here.
type unpackJob struct {
	target   ocispec.Descriptor
	platform string // empty: the store's
	to       *arrival
	fetch    images.Handler // brings a blob into the content store; nil if all are there
	track    *progress.Tracker
}

// unpackImage fetches and unpacks the image: layers are fetched in parallel,
// unpacked in parallel, and stacked in order.
func (s *Store) unpackImage(ctx context.Context, job unpackJob) error {
	matcher, err := s.matcher(job.platform)
	if err != nil {
		return err
	}
	layers := layer.NewWriter(layer.Options{
		Snapshotter: s.snapshots(), Content: job.to, Update: job.to.update, Dir: s.snapshotDir(),
		Slots: s.slots.unpacks, Limits: s.cfg.Limits, Track: job.track,
		Stack: func(ctx context.Context, chainID string) ([]string, error) {
			dirs, _, err := s.stack(ctx, chainID)
			return dirs, err
		},
	})
	u, err := unpack.NewUnpacker(ctx, job.to,
		unpack.WithUnpackPlatform(unpack.Platform{
			// Which manifest to take is decided by children. What is chosen gets
			// unpacked, even where its configuration names no platform.
			Platform:                platforms.All,
			SnapshotterKey:          snapshotterKey,
			Snapshotter:             layers,
			SnapshotterCapabilities: []string{snapshots.RebaseCap},
			Applier:                 layers,
		}),
		unpack.WithLimiter(&layer.Patient{Slots: s.slots.downloads}),
		// Parallel unpacking needs a limiter. It is held while a layer waits for
		// its download, so a shared one would let slow registries starve other
		// pulls; the shared limit is taken by layer.Writer instead.
		unpack.WithUnpackLimiter(semaphore.NewWeighted(1<<30)),
		// Without it a layer that is unpacked already is not fetched, and the
		// image could not be exported.
		unpack.WithFetchAllContent(),
		unpack.WithDuplicationSuppressor(&s.blobs),
	)
	if err != nil {
		return err
	}
	handlers := []images.Handler{s.guard()}
	if job.fetch != nil {
		handlers = append(handlers, job.fetch)
	}
	handlers = append(handlers, children(job.to, matcher, job.track))
	err = images.Dispatch(ctx, u.Unpack(images.Handlers(handlers...)), nil, job.target)
	// The unpacker's goroutines must be gone before the lease is: wait always.
	// When one side fails, the other is cancelled, so the first error that is
	// not about cancellation tells why.
	_, werr := u.Wait()
	return firstCause(err, werr)
}

// guard refuses documents before they are fetched.
func (s *Store) guard() images.HandlerFunc {
	return func(_ context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if err := desc.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("digest %.100q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
		}
		switch {
		case images.IsLayerType(desc.MediaType):
			return nil, s.checkLayerSize(desc)
		case desc.MediaType == images.MediaTypeDockerSchema1Manifest,
			desc.MediaType == "application/vnd.docker.distribution.manifest.v1+json":
			return nil, errSchema1
		case images.IsManifestType(desc.MediaType), images.IsIndexType(desc.MediaType), images.IsConfigType(desc.MediaType):
			return nil, documents.CheckSize(desc)
		}
		return nil, fmt.Errorf("%s has the type %q, which is not part of a container image: %w",
			desc.Digest, desc.MediaType, errdefs.ErrInvalidArgument)
	}
}

// checkLayerSize refuses what no layer can have, and what is larger than one may
// be unpacked.
func (s *Store) checkLayerSize(desc ocispec.Descriptor) error {
	switch limit := s.cfg.Limits.LayerBytes; {
	case desc.Size <= 0:
		return fmt.Errorf("layer %s is said to have %d bytes: %w", desc.Digest, desc.Size, errdefs.ErrInvalidArgument)
	case desc.Size > limit:
		return fmt.Errorf("layer %s has %d bytes, the limit is %d (images.max_layer_bytes): %w", desc.Digest, desc.Size, limit, errdefs.ErrExhausted)
	}
	return nil
}

// Bounds of what documents refer to.
const (
	maxLayers  = 500 // as many as overlay can put on top of each other
	maxIndexes = 8   // one within the other
)

// children reads what a manifest or an index refers to, labels the blob so that
// its children outlive garbage collection, and goes on with the one variant
// that fits the platform.
func children(blobs content.Store, m platforms.MatchComparer, track *progress.Tracker) images.HandlerFunc {
	read := func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		return readChildren(ctx, blobs, desc)
	}
	all := images.SetChildrenMappedLabels(blobs, images.HandlerFunc(read), images.ChildGCLabels)
	var indexes atomic.Int32 // of each only one child is looked at
	return func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if images.IsIndexType(desc.MediaType) && indexes.Add(1) > maxIndexes {
			return nil, errDeep
		}
		if images.IsConfigType(desc.MediaType) { // before any layer is fetched for it
			_, err := documents.ReadConfig(ctx, blobs, desc)
			return nil, err
		}
		kids, err := all(ctx, desc)
		if err != nil {
			return nil, err
		}
		if images.IsManifestType(desc.MediaType) {
			track.Expect(kids[1:])
		}
		if !images.IsIndexType(desc.MediaType) {
			return kids, nil
		}
		chosen, err := documents.Select(kids, m)
		if err != nil {
			return nil, err
		}
		return []ocispec.Descriptor{chosen}, nil
	}
}

var errDeep = fmt.Errorf("its index leads from one index to the next more than %d times: %w", maxIndexes, errdefs.ErrInvalidArgument)

// document is any manifest or index, for telling them apart by their content.
type document struct {
	SchemaVersion int                  `json:"schemaVersion"`
	Config        *ocispec.Descriptor  `json:"config"`
	Layers        []ocispec.Descriptor `json:"layers"`
	Manifests     []ocispec.Descriptor `json:"manifests"`
	FSLayers      json.RawMessage      `json:"fsLayers"` // schema 1 only
}

func readChildren(ctx context.Context, blobs content.Provider, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	isIndex := images.IsIndexType(desc.MediaType)
	if !isIndex && !images.IsManifestType(desc.MediaType) {
		return nil, nil
	}
	b, err := content.ReadBlob(ctx, blobs, ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("manifest %s is not JSON: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	switch {
	case doc.SchemaVersion == 1 || len(doc.FSLayers) > 0:
		return nil, errSchema1
	case isIndex != (doc.Config == nil):
		return nil, fmt.Errorf("manifest %s is not what its type %s says: %w", desc.Digest, desc.MediaType, errdefs.ErrInvalidArgument)
	case isIndex:
		return plain(doc.Manifests), nil
	}
	config := *doc.Config
	if config.MediaType == "application/octet-stream" { // docker 1.9 and older wrote that
		config.MediaType = images.MediaTypeDockerSchema2Config
	}
	if !images.IsConfigType(config.MediaType) {
		return nil, fmt.Errorf("manifest %s is not a container image but an artifact of type %q: %w",
			desc.Digest, config.MediaType, errdefs.ErrInvalidArgument)
	}
	if n := len(doc.Layers); n > maxLayers {
		return nil, fmt.Errorf("manifest %s has %d layers, more than the %d that overlay can mount: %w", desc.Digest, n, maxLayers, errdefs.ErrInvalidArgument)
	}
	for _, l := range doc.Layers {
		if err := checkLayerType(l.MediaType); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	return plain(append([]ocispec.Descriptor{config}, doc.Layers...)), nil
}

func checkLayerType(mediaType string) error {
	if strings.HasSuffix(mediaType, "+encrypted") {
		return fmt.Errorf("type %s: encrypted layers: %w", mediaType, errdefs.ErrUnimplemented)
	}
	if _, err := images.DiffCompression(context.Background(), mediaType); err != nil {
		return fmt.Errorf("type %q: layers are tar archives, plain or compressed with gzip or zstd: %w", mediaType, errdefs.ErrUnimplemented)
	}
	return nil
}

// plain strips descriptors to what identifies a blob. Annotations would reach
// the snapshotter as labels, and URLs would have this node fetch from wherever
// the image says.
func plain(descs []ocispec.Descriptor) []ocispec.Descriptor {
	out := make([]ocispec.Descriptor, 0, len(descs))
	for _, d := range descs {
		out = append(out, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Platform: d.Platform})
	}
	return out
}

// ApplyChanges unpacks what a container had changed over the mounted root file
// system at dir, within the limits of a layer.
func (s *Store) ApplyChanges(ctx context.Context, dir string, tarball io.Reader) error {
	return layer.ApplyChanges(ctx, dir, tarball, layer.Options{Dir: s.snapshotDir(), Limits: s.cfg.Limits})
}
