package image

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/documents"
)

// oneBlob is a content store with one document.
type oneBlob struct{ body []byte }

// ReaderAt implements content.Provider.
func (o oneBlob) ReaderAt(context.Context, ocispec.Descriptor) (content.ReaderAt, error) {
	return o, nil
}

func (o oneBlob) ReadAt(p []byte, off int64) (int, error) {
	return copy(p, o.body[min(off, o.Size()):]), nil
}
func (o oneBlob) Size() int64  { return int64(len(o.body)) }
func (o oneBlob) Close() error { return nil }

// FuzzDocuments reads any document as a manifest and as an index. What comes of
// it is bounded, and has nothing but what identifies blobs.
func FuzzDocuments(f *testing.F) {
	d := digest.FromString("x")
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: d, Size: 5, URLs: []string{"http://x"}, Annotations: map[string]string{"a": "b"}}
	config := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: d, Size: 7}
	variant := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: d, Size: 7, Platform: &ocispec.Platform{OS: "linux", Architecture: "amd64"}}
	for _, doc := range []any{
		ocispec.Manifest{Config: config, Layers: []ocispec.Descriptor{layer, layer}},
		ocispec.Index{Manifests: []ocispec.Descriptor{variant, variant}},
		map[string]any{"schemaVersion": 1, "fsLayers": []string{}},
		[]string{},
		nil,
	} {
		b, err := json.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	matcher := platforms.Only(platforms.MustParse("linux/arm64/v8"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, mediaType := range []string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex} {
			desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
			kids, err := readChildren(t.Context(), oneBlob{b}, desc)
			if err != nil {
				if !errors.Is(err, errdefs.ErrInvalidArgument) && !errors.Is(err, errdefs.ErrUnimplemented) && !errors.Is(err, errSchema1) {
					t.Errorf("whose fault is this? %v", err)
				}
				continue
			}
			if images.IsManifestType(mediaType) && (len(kids) == 0 || len(kids) > 1+maxLayers || !images.IsConfigType(kids[0].MediaType)) {
				t.Errorf("children %v", kids)
			}
			for _, k := range kids {
				if len(k.URLs)+len(k.Annotations)+len(k.Data) > 0 {
					t.Errorf("kept of a descriptor: %v", k)
				}
			}
			if _, err := documents.Select(kids, matcher); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
				t.Error(err)
			}
		}
	})
}
