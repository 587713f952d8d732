package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// File is one entry of a layer. The zero File is an empty regular file of
// root's with mode 0644.
type File struct {
	Body     []byte
	Mode     int64 // permission bits, with setuid and the like as tar has them; 0: 0755 for folders, else 0644
	UID, GID int
	Dir      bool
	Symlink  string            // target; makes the entry a symbolic link
	Hardlink string            // path in the archive; makes the entry a hard link
	Device   string            // "c 1:3", "b 7:0" or "p": makes the entry a device node or a pipe
	Xattrs   map[string]string // "security.capability" and the like
}

// Compression is how a layer is packed.
type Compression string

// The ways to pack a layer. The zero value means Gzip.
const (
	Gzip  Compression = "gzip"
	Zstd  Compression = "zstd"
	Plain Compression = "plain"
)

// Layer is one layer of an image. Names of Files are paths without a leading
// slash; ".wh.NAME" deletes NAME, ".wh..wh..opq" hides what is below.
type Layer struct {
	Files       map[string]File
	Sparse      bool // do not add entries for parent folders that Files does not list
	Compression Compression
	Tarball     []byte            // instead of Files: the unpacked archive as it is, sound or not
	Blob        []byte            // instead of packing: the blob as it is
	MediaType   string            // instead of the one that fits Compression
	Annotations map[string]string // of the layer's descriptor
	URLs        []string          // of the layer's descriptor
}

// Spec is what an image is built from.
type Spec struct {
	Layers      []Layer
	Config      ocispec.ImageConfig
	Arch        string    // default: this machine's
	Created     time.Time // default: a fixed date, so that equal specs have equal digests
	Docker      bool      // docker's media types in place of OCI's
	Annotations map[string]string
	DiffIDs     []digest.Digest // instead of the true ones
}

// Image is a built image, or an index of several.
type Image struct {
	Desc     ocispec.Descriptor       // of the manifest or index
	ID       string                   // digest of the configuration; empty for an index
	Blobs    map[digest.Digest][]byte // everything that Desc refers to, and itself
	tarballs [][]byte                 // unpacked layers, for docker archives
	config   []byte
	layers   []ocispec.Descriptor
}

// Layers are the descriptors of the layers, bottom first.
func (i *Image) Layers() []ocispec.Descriptor { return slices.Clone(i.layers) }

// Packed is the layer with its archive and blob made, so that all the images
// that are built on it share the work.
func (l Layer) Packed() (Layer, error) {
	var err error
	if l.Tarball == nil {
		if l.Tarball, err = pack(l); err != nil {
			return Layer{}, fmt.Errorf("pack: %w", err)
		}
	}
	if l.Blob, err = compress(l.Tarball, l); err != nil {
		return Layer{}, fmt.Errorf("compress: %w", err)
	}
	return l, nil
}

// Build makes an image.
func Build(s Spec) (*Image, error) {
	img := &Image{Blobs: map[digest.Digest][]byte{}}
	var diffIDs []digest.Digest
	for n, l := range s.Layers {
		l, err := l.Packed()
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", n, err)
		}
		desc := img.add(layerType(l, s.Docker), l.Blob)
		desc.Annotations, desc.URLs = l.Annotations, l.URLs
		img.layers = append(img.layers, desc)
		img.tarballs = append(img.tarballs, l.Tarball)
		diffIDs = append(diffIDs, digest.FromBytes(l.Tarball))
	}
	if s.DiffIDs != nil {
		diffIDs = s.DiffIDs
	}
	if err := img.finish(s, diffIDs); err != nil {
		return nil, err
	}
	return img, nil
}

// finish writes configuration and manifest.
func (i *Image) finish(s Spec, diffIDs []digest.Digest) error {
	created := s.Created
	if created.IsZero() {
		created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	arch := s.Arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	config := ocispec.Image{
		Created:  &created,
		Platform: ocispec.Platform{OS: "linux", Architecture: arch},
		Config:   s.Config,
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: diffIDs},
	}
	var err error
	if i.config, err = json.Marshal(config); err != nil {
		return err
	}
	configType, manifestType := ocispec.MediaTypeImageConfig, ocispec.MediaTypeImageManifest
	if s.Docker {
		configType = "application/vnd.docker.container.image.v1+json"
		manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	}
	configDesc := i.add(configType, i.config)
	i.ID = configDesc.Digest.String()
	layers := i.layers
	if layers == nil {
		layers = []ocispec.Descriptor{}
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: manifestType,
		Config: configDesc, Layers: layers, Annotations: s.Annotations,
	})
	if err != nil {
		return err
	}
	i.Desc = i.add(manifestType, manifest)
	i.Desc.Platform = &ocispec.Platform{OS: "linux", Architecture: arch}
	return nil
}

// Index joins images for several architectures under one digest.
func Index(variants ...*Image) (*Image, error) {
	out := &Image{Blobs: map[digest.Digest][]byte{}}
	idx := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, v := range variants {
		idx.Manifests = append(idx.Manifests, v.Desc)
		for d, b := range v.Blobs {
			out.Blobs[d] = b
		}
	}
	b, err := json.Marshal(idx)
	if err != nil {
		return nil, fmt.Errorf("write index: %w", err)
	}
	out.Desc = out.add(ocispec.MediaTypeImageIndex, b)
	return out, nil
}

func (i *Image) add(mediaType string, b []byte) ocispec.Descriptor {
	d := digest.FromBytes(b)
	i.Blobs[d] = b
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(b))}
}

func layerType(l Layer, docker bool) string {
	if l.MediaType != "" {
		return l.MediaType
	}
	base, suffix := ocispec.MediaTypeImageLayer, map[Compression]string{"": "+gzip", Gzip: "+gzip", Zstd: "+zstd"}
	if docker {
		base, suffix = "application/vnd.docker.image.rootfs.diff.tar", map[Compression]string{"": ".gzip", Gzip: ".gzip", Zstd: ".zstd"}
	}
	return base + suffix[l.Compression]
}

func compress(tarball []byte, l Layer) ([]byte, error) {
	if l.Blob != nil {
		return l.Blob, nil
	}
	var out bytes.Buffer
	switch l.Compression {
	case Plain:
		return tarball, nil
	case Zstd:
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(tarball); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	case Gzip, "":
		w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(tarball); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	}
	return nil, fmt.Errorf("compression %q is unknown", l.Compression)
}

// pack writes the files as a tar archive, in the order of their names.
func pack(l Layer) ([]byte, error) {
	files := map[string]File{}
	for name, f := range l.Files {
		name = strings.Trim(name, "/")
		files[name] = f
		for dir := path.Dir(name); !l.Sparse && dir != "." && dir != "/" && !strings.HasPrefix(dir, ".."); dir = path.Dir(dir) {
			_, listed := l.Files[dir]
			_, listedSlash := l.Files["/"+dir]
			if !listed && !listedSlash {
				files[dir] = File{Dir: true}
			}
		}
	}
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, n := range names {
		f := files[n]
		if to, ok := files[f.Hardlink]; ok { // one file, so one owner and mode
			f.Mode, f.UID, f.GID = to.Mode, to.UID, to.GID
		}
		if err := writeEntry(w, n, f); err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func writeEntry(w *tar.Writer, name string, f File) error {
	h := &tar.Header{
		Name: name, Mode: f.Mode, Uid: f.UID, Gid: f.GID, Typeflag: tar.TypeReg, Size: int64(len(f.Body)),
		ModTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Format: tar.FormatPAX,
	}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	switch {
	case f.Dir:
		h.Typeflag, h.Name, h.Size = tar.TypeDir, name+"/", 0
		if f.Mode == 0 {
			h.Mode = 0o755
		}
	case f.Symlink != "":
		h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, f.Symlink, 0, 0o777
	case f.Hardlink != "":
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, f.Hardlink, 0
	case f.Device != "":
		if err := asDevice(h, f.Device); err != nil {
			return err
		}
	}
	for k, v := range f.Xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+k] = v
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := w.Write(f.Body)
	return err
}

// asDevice turns an entry into a device node or a pipe.
func asDevice(h *tar.Header, device string) error {
	kind, number, _ := strings.Cut(device, " ")
	types := map[string]byte{"c": tar.TypeChar, "b": tar.TypeBlock, "p": tar.TypeFifo}
	h.Typeflag, h.Size = types[kind], 0
	if kind == "p" {
		return nil
	}
	if _, err := fmt.Sscanf(number, "%d:%d", &h.Devmajor, &h.Devminor); err != nil || h.Typeflag == 0 {
		return fmt.Errorf("device %q: want \"c 1:3\", \"b 7:0\" or \"p\"", device)
	}
	return nil
}
