package images

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Named is an image and the names that an archive gives to it.
type Named struct {
	Image *Image
	Names []string // full names; none makes the image nameless
}

// WriteOCI writes an OCI image layout as a tar archive.
func WriteOCI(w io.Writer, all ...Named) error {
	tw := tar.NewWriter(w)
	idx := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	blobs := map[string][]byte{}
	for _, n := range all {
		for d, b := range n.Image.Blobs {
			blobs["blobs/"+d.Algorithm().String()+"/"+d.Encoded()] = b
		}
		if len(n.Names) == 0 {
			idx.Manifests = append(idx.Manifests, n.Image.Desc)
		}
		for _, name := range n.Names {
			d := n.Image.Desc
			d.Annotations = map[string]string{
				"io.containerd.image.name": name,
				ocispec.AnnotationRefName:  name[strings.LastIndexByte(name, ':')+1:],
			}
			idx.Manifests = append(idx.Manifests, d)
		}
	}
	index, err := json.Marshal(idx)
	if err != nil {
		return fmt.Errorf("write OCI archive: %w", err)
	}
	blobs["index.json"] = index
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	return writeFiles(tw, blobs)
}

// WriteDocker writes what docker save of old wrote: a configuration, unpacked
// layers, and manifest.json that ties them together.
func WriteDocker(w io.Writer, all ...Named) error {
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifest []entry
	files := map[string][]byte{}
	for _, n := range all {
		e := entry{Config: strings.TrimPrefix(n.Image.ID, "sha256:") + ".json", RepoTags: n.Names}
		files[e.Config] = n.Image.config
		for i, t := range n.Image.tarballs {
			name := n.Image.layers[i].Digest.Encoded() + "/layer.tar"
			files[name] = t
			e.Layers = append(e.Layers, name)
		}
		manifest = append(manifest, e)
	}
	b, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("write docker archive: %w", err)
	}
	files["manifest.json"] = b
	return writeFiles(tar.NewWriter(w), files)
}

func writeFiles(tw *tar.Writer, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s to the archive: %w", name, err)
		}
		if _, err := tw.Write(files[name]); err != nil {
			return fmt.Errorf("write %s to the archive: %w", name, err)
		}
	}
	return tw.Close()
}
