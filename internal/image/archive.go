package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/documents"
	"fairlead.run/internal/image/fault"
	"fairlead.run/internal/image/layer"
	"fairlead.run/internal/image/progress"
	"fairlead.run/internal/image/refs"
	"fairlead.run/internal/image/transfer"
)

var imported = failpoint.Register("image.imported")

// ImportOptions say how an archive is read.
type ImportOptions struct {
	Ref      string         // name for the image; the archive must hold one image only. Empty: the archive's names
	Platform string         // "linux/arm64"; empty: the store's
	Progress func(Progress) // called on a goroutine of the import, and once at the end
}

// Import reads images from an archive: an OCI layout or what docker save
// writes, plain or compressed with gzip or zstd. An image without a name is
// known by its id alone. If any image of the archive is broken, none is kept.
func (s *Store) Import(ctx context.Context, r io.Reader, opts ImportOptions) (imgs []Image, err error) {
	var ref string
	if opts.Ref != "" {
		if ref, err = refs.Normalize(opts.Ref); err != nil {
			return nil, fmt.Errorf("import image: %w", err)
		}
	}
	defer func() {
		if err != nil {
			err = describeImport(ctx, err, s.cfg.Root)
		}
	}()
	track := progress.NewTracker("import")
	track.Enter(progress.Reading)
	defer s.flying.Follow("import", ref, track.Snapshot)()
	tarball, err := layer.Decompress(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tarball.Close() }()
	begun, err := beginsAsTar(tarball)
	if err != nil {
		return nil, err
	}
	ctx = s.with(ctx)
	a := s.arrive()
	// What the archive holds beside images is collected in any case.
	defer func() { err = errors.Join(err, a.end(ctx, true)) }()

	index, err := archive.ImportIndex(ctx, transfer.ForImport(a), begun)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit(imported); err != nil {
		return nil, err
	}
	entries, err := s.archiveEntries(ctx, a, index, importAs{opts, ref})
	if err != nil {
		return nil, err
	}
	stop := progress.ReportWhile(track, opts.Progress)
	defer stop()
	for _, e := range entries {
		if err := s.unpackImage(ctx, unpackJob{target: e.target, platform: opts.Platform, to: a, track: track}); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		img, err := s.record(ctx, a, recording{e.target, opts.Platform, e.names})
		if err != nil {
			return nil, err
		}
		imgs = append(imgs, img)
	}
	track.Finish()
	for i := range imgs { // names may have moved between images of one archive
		if img, err := s.list.Load().find(imgs[i].ID); err == nil {
			imgs[i] = img.clone()
		}
	}
	return imgs, nil
}

// errNoArchive is about what was never a tar archive, damaged or not.
var errNoArchive = errors.New("no tar archive")

// beginsAsTar looks at the first block, which of a tar archive is a header.
func beginsAsTar(r io.Reader) (io.Reader, error) {
	const block = 512
	begun := bufio.NewReaderSize(r, 256<<10)
	head, err := begun.Peek(block)
	if len(head) < block {
		if err == io.EOF {
			err = errNoArchive
		}
		return nil, err
	}
	if _, err := tar.NewReader(bytes.NewReader(head)).Next(); errors.Is(err, tar.ErrHeader) {
		return nil, errNoArchive
	}
	return begun, nil
}

// importAs are the options, and the name in full.
type importAs struct {
	ImportOptions
	ref string
}

// archiveEntry is an image of an archive.
type archiveEntry struct {
	target ocispec.Descriptor
	names  []string
}

// archiveEntries picks the images that fit the platform out of an archive. One
// image in several variants is several manifests with the same name.
func (s *Store) archiveEntries(ctx context.Context, blobs content.Provider, index ocispec.Descriptor, as importAs) ([]archiveEntry, error) {
	ref := as.ref
	matcher, err := s.matcher(as.Platform)
	if err != nil {
		return nil, err
	}
	var idx ocispec.Index
	if err := documents.Read(ctx, blobs, index, &idx); err != nil {
		return nil, err
	}
	byName := map[string][]ocispec.Descriptor{}
	var order []string
	for _, m := range idx.Manifests {
		name, err := archiveName(m)
		if err != nil {
			return nil, err
		}
		key := name
		if key == "" && ref == "" {
			key = "@" + m.Digest.String() // nameless ones are images of their own
		}
		if byName[key] == nil {
			order = append(order, key)
		}
		byName[key] = append(byName[key], m)
	}
	var out []archiveEntry
	for _, name := range order {
		target, err := documents.Select(byName[name], matcher)
		if err != nil {
			if strings.HasPrefix(name, "@") && len(order) > 1 {
				continue // a nameless variant for another platform, or an attestation
			}
			return nil, err
		}
		out = appendEntry(out, plain([]ocispec.Descriptor{target})[0], name)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the archive holds no image for %s: %w", platformName(as.Platform, s), errdefs.ErrNotFound)
	}
	if ref != "" {
		if len(out) > 1 {
			return nil, fmt.Errorf("the archive holds %d images, so they cannot all be named %s: %w", len(out), ref, errdefs.ErrInvalidArgument)
		}
		out[0].names = []string{ref}
	}
	return out, nil
}

func appendEntry(out []archiveEntry, target ocispec.Descriptor, name string) []archiveEntry {
	i := slices.IndexFunc(out, func(e archiveEntry) bool { return e.target.Digest == target.Digest })
	if i < 0 {
		out = append(out, archiveEntry{target: target})
		i = len(out) - 1
	}
	if name != "" && !strings.HasPrefix(name, "@") {
		out[i].names = append(out[i].names, name)
	}
	return out
}

func platformName(platform string, s *Store) string {
	if platform == "" {
		platform = s.cfg.Platform
	}
	return platforms.Format(platforms.Normalize(platforms.MustParse(platform)))
}

// archiveName is the name that the archive gives to a manifest. A name that is
// only a tag names nothing: it would need a repository.
func archiveName(m ocispec.Descriptor) (string, error) {
	name := m.Annotations[images.AnnotationImageName]
	if name == "" {
		name = m.Annotations[ocispec.AnnotationRefName]
		if !strings.ContainsAny(name, "/:") {
			return "", nil
		}
	}
	full, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("the archive names an image %q: %w: %w", name, err, errdefs.ErrInvalidArgument)
	}
	return full.String(), nil
}

// Export writes an OCI layout archive that docker load reads as well. Of an
// image with variants only the one that is here is written. Ids are allowed;
// the image is then nameless in the archive.
func (s *Store) Export(ctx context.Context, w io.Writer, refs ...string) error {
	defer s.follow("export", strings.Join(refs, " "), progress.Writing)()
	if len(refs) == 0 {
		return fmt.Errorf("export images: name at least one: %w", errdefs.ErrInvalidArgument)
	}
	ctx = s.with(ctx)
	a := s.arrive()
	done := func() error { return a.end(ctx, false) }
	var opts []archive.ExportOpt
	for _, ref := range refs {
		m, names, err := s.manifestOf(ctx, ref)
		if err != nil {
			return errors.Join(fmt.Errorf("export image %s: %w", ref, err), done())
		}
		opts = append(opts, archive.WithManifest(m, names...))
	}
	if err := archive.Export(ctx, s.content(), w, opts...); err != nil {
		return errors.Join(fmt.Errorf("export images: %w", fault.Local(err)), done())
	}
	return done()
}

// manifestOf finds the manifest of an image and the name to write it under.
func (s *Store) manifestOf(ctx context.Context, ref string) (ocispec.Descriptor, []string, error) {
	idx := s.list.Load()
	img, err := idx.find(ref)
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	name, err := refs.Normalize(ref)
	named := err == nil && idx.byName[name] == img
	if !named {
		name = idx.names[img.ID][0]
	}
	rec, err := s.images().Get(ctx, name)
	if err != nil {
		return ocispec.Descriptor{}, nil, fault.Local(err)
	}
	matcher, err := s.matcher(rec.Labels[labelPlatform])
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	desc := rec.Target
	for images.IsIndexType(desc.MediaType) {
		var list ocispec.Index
		if err := documents.Read(ctx, s.content(), desc, &list); err != nil {
			return ocispec.Descriptor{}, nil, err
		}
		if desc, err = documents.Select(list.Manifests, matcher); err != nil {
			return ocispec.Descriptor{}, nil, err
		}
	}
	desc = plain([]ocispec.Descriptor{desc})[0]
	if !named || refs.KindOf(name) != refs.Tag {
		return desc, nil, nil
	}
	return desc, []string{name}, nil
}
