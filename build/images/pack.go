package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	payload "fairlead.run/api/payload/v1alpha1"
)

// epoch is when everything was made. What differs from build to build would differ
// in the digest.
var epoch = time.Unix(0, 0).UTC()

// product is an image that was made, for all architectures.
type product struct {
	name, version string
	index         v1.ImageIndex
	digest        v1.Hash
	payload       *payload.RuntimePayload // nil for what is none
}

// packer makes images. Its layers are files, by what they have in them.
type packer struct {
	work   string
	layers map[string]v1.Layer
}

func newPacker(work string) *packer { return &packer{work: work, layers: map[string]v1.Layer{}} }

func (p *packer) pack(i *image) (product, error) {
	labels := map[string]string{
		ocispec.AnnotationTitle: i.title, ocispec.AnnotationVersion: i.version, ocispec.AnnotationLicenses: "Apache-2.0",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(i.layers)) {
		one, err := p.packFor(i, arch, labels)
		if err != nil {
			return product{}, fmt.Errorf("for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	annotated, ok := mutate.Annotations(index, labels).(v1.ImageIndex)
	if !ok {
		return product{}, fmt.Errorf("annotate %T", index)
	}
	digest, err := annotated.Digest()
	return product{name: i.name, version: i.version, index: annotated, digest: digest, payload: i.payload}, err
}

func (p *packer) packFor(i *image, arch string, labels map[string]string) (v1.Image, error) {
	config := &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: epoch},
		Config: v1.Config{User: i.user, Entrypoint: i.entrypoint, WorkingDir: "/", Labels: labels},
		RootFS: v1.RootFS{Type: "layers"},
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	out, err := mutate.ConfigFile(base, config)
	if err != nil {
		return nil, err
	}
	for _, files := range i.layers[arch] {
		packed, err := p.layer(files)
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "fairlead build/images"}
		if out, err = mutate.Append(out, mutate.Addendum{Layer: packed, History: history, MediaType: types.OCILayer}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// layer writes the files into a layer, unless the same one was written before.
func (p *packer) layer(files layer) (v1.Layer, error) {
	key := fmt.Sprint(files) // fmt sorts maps
	if done := p.layers[key]; done != nil {
		return done, nil
	}
	f, err := os.Create(filepath.Join(p.work, fmt.Sprintf("layer-%d.tar.gz", len(p.layers))))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zip := gzip.NewWriter(f) // its header has no name and no time
	if err := writeTar(zip, files); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	packed, err := tarball.LayerFromFile(f.Name(), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	p.layers[key] = packed
	return packed, nil
}

// writeTar writes files in the order of their names, each folder before what is in
// it, all of root and of the epoch.
func writeTar(w io.Writer, files layer) error {
	out := tar.NewWriter(w)
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeFolders(out, path.Dir(name), folders); err != nil {
			return err
		}
		if err := writeFile(out, name, files[name]); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	return out.Close()
}

func writeFolders(out *tar.Writer, name string, done map[string]bool) error {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		if at = path.Join(at, part); at == "." || done[at] {
			continue
		}
		done[at] = true
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: at + "/", Mode: 0o755, ModTime: epoch}); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(out *tar.Writer, name string, from source) error {
	body, size := io.Reader(bytes.NewReader(from.text)), int64(len(from.text))
	if from.file != "" {
		f, err := os.Open(from.file)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		body, size = f, info.Size()
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: from.mode, Size: size, ModTime: epoch}); err != nil {
		return err
	}
	_, err := io.Copy(out, body)
	return err
}
