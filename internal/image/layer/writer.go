// Package layer unpacks the layers of an image: decompression, limits, deletions
// as overlay wants them, and the attributes of folders that a layer uses without
// listing them. It starts no process and mounts nothing. What is fetched and in
// which order layers are stacked is decided by containerd's unpacker.
package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/archive"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/klauspost/readahead"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/progress"
)

var (
	prepared  = failpoint.Register("image.layer-prepared")
	applied   = failpoint.Register("image.layer-applied")
	committed = failpoint.Register("image.layer-committed")
)

// Options are what a Writer works with.
type Options struct {
	Snapshotter snapshots.Snapshotter
	Content     content.Provider
	Dir         string              // a directory on the file system that layers are unpacked to
	Slots       *semaphore.Weighted // how many layers are unpacked at once, over all images
	Limits      Limits
	Track       *progress.Tracker
	// Update lets f change layers in one transaction, whose context it is given.
	Update func(ctx context.Context, f func(ctx context.Context) error) error
	// Stack finds the directories of a stack of layers, topmost first.
	Stack func(ctx context.Context, chainID string) ([]string, error)
}

// Writer unpacks the layers of one image. It is both the applier and the
// snapshotter that containerd's unpacker is given, because what is learnt while
// a layer is unpacked is needed when it is put on top of its parent.
type Writer struct {
	snapshots.Snapshotter
	opts Options
	pace *pace

	mu      sync.Mutex
	dirs    map[string]string   // key of a snapshot -> its directory
	implied map[string][]string // directory -> folders that its layer uses without listing them
}

// NewWriter returns a Writer for one image.
func NewWriter(o Options) *Writer {
	return &Writer{Snapshotter: o.Snapshotter, opts: o, pace: newPace(), dirs: map[string]string{}, implied: map[string][]string{}}
}

// Prepare is the snapshotter's, and remembers the directory.
func (w *Writer) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	var mounts []mount.Mount
	err := w.change(ctx, func(ctx context.Context) (err error) {
		mounts, err = w.Snapshotter.Prepare(ctx, key, parent, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit(prepared); err != nil {
		return nil, err
	}
	dir, _, err := layerDir(mounts)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirs[key] = dir
	return mounts, nil
}

// Commit puts the layer on top of its parent. Folders that the layer uses but
// does not list get the parent's owner and mode first: unpacked by itself, the
// layer could only make them root's, and on top they would hide the real ones.
func (w *Writer) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	var info snapshots.Info
	for _, opt := range opts {
		if err := opt(&info); err != nil {
			return err
		}
	}
	w.mu.Lock()
	dir := w.dirs[key]
	implied := w.implied[dir]
	delete(w.dirs, key)
	delete(w.implied, dir)
	w.mu.Unlock()
	if info.Parent != "" && len(implied) > 0 {
		lowers, err := w.opts.Stack(ctx, info.Parent)
		if err != nil {
			return err
		}
		watch := newWatch(w.opts.bound(), w.pace, ctx.Err)
		if err := inheritFolders(watch, dir, lowers, implied); err != nil {
			return fmt.Errorf("give folders of layer %s the attributes that they have below: %w", name, err)
		}
	}
	err := w.change(ctx, func(ctx context.Context) error { return w.Snapshotter.Commit(ctx, name, key, opts...) })
	if err != nil {
		return err
	}
	return failpoint.Hit(committed)
}

// change makes a change in one transaction. That something is there already is
// told, and is no failure of the transaction: it is under the lease from then on.
func (w *Writer) change(ctx context.Context, f func(ctx context.Context) error) error {
	var there error
	err := w.opts.Update(ctx, func(ctx context.Context) error {
		err := f(ctx)
		if cerrdefs.IsAlreadyExists(err) {
			there, err = err, nil
		}
		return err
	})
	return errors.Join(err, there)
}

// How much of a layer is decompressed before it is asked for, in bytes.
const (
	aheadBuffers = 4
	aheadSize    = 128 << 10
)

// Apply unpacks a layer into its directory, without a mount and without
// starting a process. It returns the digest of the unpacked archive, which the
// unpacker compares with the image's configuration.
func (w *Writer) Apply(ctx context.Context, desc ocispec.Descriptor, mounts []mount.Mount, _ ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	dir, stacked, err := layerDir(mounts)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if err := w.opts.Slots.Acquire(ctx, 1); err != nil {
		return ocispec.Descriptor{}, err
	}
	defer w.opts.Slots.Release(1)
	ra, err := w.opts.Content.ReaderAt(ctx, ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer func() { _ = ra.Close() }()
	tarball, err := Decompress(&unpackReader{r: content.NewReader(ra), w: w, desc: desc})
	if err != nil {
		return ocispec.Descriptor{}, &Error{desc.Digest, err}
	}
	// One processor decompresses while another makes files.
	tarball, err = readahead.NewReadCloserSize(tarball, aheadBuffers, aheadSize)
	if err != nil {
		return ocispec.Descriptor{}, &Error{desc.Digest, err}
	}
	defer func() { _ = tarball.Close() }()

	digester := digest.Canonical.Digester()
	watch := newWatch(w.opts.bound(), w.pace, ctx.Err)
	limited := &cappedReader{r: io.TeeReader(tarball, digester.Hash()), watch: watch}
	scan := newEntryScan(watch)
	opts := []archive.ApplyOpt{archive.WithFilter(scan.visit)}
	if stacked {
		opts = append(opts, archive.WithConvertWhiteout(archive.OverlayConvertWhiteout))
	}
	_, err = archive.Apply(ctx, dir, limited, opts...)
	if err == nil {
		_, err = io.Copy(io.Discard, limited) // padding after the archive's end counts for the digest
	}
	if err == nil {
		err = watch.look()
	}
	if err != nil {
		return ocispec.Descriptor{}, &Error{desc.Digest, err}
	}
	w.mu.Lock()
	w.implied[dir] = scan.implied()
	w.mu.Unlock()
	if err := failpoint.Hit(applied); err != nil {
		return ocispec.Descriptor{}, err
	}
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digester.Digest(), Size: limited.n}, nil
}

// layerDir is the directory that a fresh snapshot's mount would write to, and
// whether the layer goes on top of others: then deletions in it have to become
// overlay's whiteouts.
func layerDir(mounts []mount.Mount) (dir string, stacked bool, err error) {
	if len(mounts) == 1 && mounts[0].Type == "bind" {
		return mounts[0].Source, false, nil
	}
	if len(mounts) == 1 && mounts[0].Type == "overlay" {
		for _, o := range mounts[0].Options {
			if dir, ok := strings.CutPrefix(o, "upperdir="); ok {
				return dir, true, nil
			}
		}
	}
	return "", false, fmt.Errorf("the snapshotter's mount %v has no directory to write to: %w", mounts, errdefs.ErrInternal)
}

// unpackReader reports how much of the compressed layer has been read.
type unpackReader struct {
	r    io.Reader
	w    *Writer
	desc ocispec.Descriptor
	at   int64
}

func (r *unpackReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.at += int64(n)
	phase := progress.Unpacking
	if errors.Is(err, io.EOF) {
		phase = progress.Done
	}
	r.w.opts.Track.Set(r.desc.Digest, phase, r.at)
	return n, err
}

// Error says that a layer's content could not be unpacked.
type Error struct {
	Digest digest.Digest
	Err    error
}

// Error names the layer and what is wrong with it.
func (e *Error) Error() string { return fmt.Sprintf("unpack layer %s: %v", e.Digest, e.Err) }

// Unwrap is what is wrong with the layer.
func (e *Error) Unwrap() error { return e.Err }

// Full says whether it was this node that had no room, not the layer that is bad.
func (e *Error) Full() bool {
	return errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) || errors.Is(e.Err, errdefs.ErrExhausted)
}
