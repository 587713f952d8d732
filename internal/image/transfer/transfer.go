// Package transfer brings blobs into the content store, and says how far each
// of them is.
package transfer

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/progress"
)

var fetched = failpoint.Register("image.fetched")

// Handler brings each blob that it is called for from the fetcher to the store,
// unless that has it.
func Handler(store content.Ingester, from remotes.Fetcher, track *progress.Tracker) images.HandlerFunc {
	fetch := remotes.FetchHandler(&passing{store, halfFetched}, &countingFetcher{from, track})
	return func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		kids, err := fetch(ctx, desc)
		if err == nil {
			err = failpoint.Hit(fetched)
		}
		return kids, err
	}
}

// countingFetcher reports the bytes of every blob to the tracker.
type countingFetcher struct {
	remotes.Fetcher
	track *progress.Tracker
}

func (f *countingFetcher) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	rc, err := f.Fetcher.Fetch(ctx, desc)
	if err != nil {
		return nil, err
	}
	f.track.Begin()
	f.track.Set(desc.Digest, progress.Downloading, 0)
	return &countingReader{ReadCloser: rc, desc: desc, track: f.track}, nil
}

// countingReader passes Seek on, which is how an interrupted download resumes.
type countingReader struct {
	io.ReadCloser
	desc  ocispec.Descriptor
	track *progress.Tracker
	at    int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if n > 0 {
		r.at += int64(n)
		r.track.Set(r.desc.Digest, progress.Downloading, r.at)
	}
	return n, err
}

func (r *countingReader) Seek(offset int64, whence int) (int64, error) {
	sk, ok := r.ReadCloser.(io.Seeker)
	if !ok {
		return 0, fmt.Errorf("resume the download of %s: %w", r.desc.Digest, errdefs.ErrUnimplemented)
	}
	at, err := sk.Seek(offset, whence)
	if err == nil {
		r.at = at
	}
	return at, err
}

func (r *countingReader) Close() error {
	r.track.End()
	return r.ReadCloser.Close()
}
