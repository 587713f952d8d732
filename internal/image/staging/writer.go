package staging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/disk"
)

// Writer takes in a blob. One that is here already is told as ErrAlreadyExists,
// and is on the stage then.
func (s *Stage) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	var o content.WriterOpts
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	algorithm := digest.Canonical
	if d := o.Desc.Digest; d != "" {
		there, err := s.adopt(ctx, d, o.Desc.Size)
		if err != nil {
			return nil, err
		}
		if there {
			return nil, fmt.Errorf("blob %s: %w", d, cerrdefs.ErrAlreadyExists)
		}
		algorithm = d.Algorithm()
		if free := disk.Spare(s.blobs.dir); o.Desc.Size > free {
			return nil, fmt.Errorf("%s has %d bytes, and the disk of %s can spare %d; remove images that are not needed, or enlarge it: %w",
				d, o.Desc.Size, s.blobs.dir, free, errdefs.ErrExhausted)
		}
	}
	f, err := s.blobs.create()
	if err != nil {
		return nil, fmt.Errorf("take in blob %s: %w", o.Desc.Digest, err)
	}
	now := time.Now()
	return &writer{
		stage: s, file: f, digester: algorithm.Digester(),
		status: content.Status{Ref: o.Ref, Total: o.Desc.Size, Expected: o.Desc.Digest, StartedAt: now, UpdatedAt: now},
	}, nil
}

func (b *Blobs) create() (*os.File, error) {
	f, err := os.CreateTemp(b.incoming(), "")
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(b.incoming(), 0o700); err == nil {
			f, err = os.CreateTemp(b.incoming(), "")
		}
	}
	return f, err
}

// DigestError says that a blob is not what its digest promises.
type DigestError struct{ Got, Want digest.Digest }

// Error names both.
func (e *DigestError) Error() string { return fmt.Sprintf("got %s, want %s", e.Got, e.Want) }

// Unwrap makes it what containerd's stores call it.
func (e *DigestError) Unwrap() error { return cerrdefs.ErrFailedPrecondition }

// writer is a blob that arrives. One that is closed before Commit leaves nothing.
type writer struct {
	stage    *Stage
	file     *os.File // nil once it is closed
	digester digest.Digester
	status   content.Status
}

// Write implements content.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if w.file == nil {
		return 0, os.ErrClosed
	}
	n, err := w.file.Write(p)
	w.digester.Hash().Write(p[:n])
	w.status.Offset += int64(n)
	w.status.UpdatedAt = time.Now()
	return n, err
}

// Digest is that of what has arrived so far.
func (w *writer) Digest() digest.Digest { return w.digester.Digest() }

// Status implements content.Writer.
func (w *writer) Status() (content.Status, error) { return w.status, nil }

// Truncate begins anew; no other size than 0 is possible.
func (w *writer) Truncate(size int64) error {
	if size != 0 || w.file == nil {
		return fmt.Errorf("cut a blob to %d bytes: %w", size, cerrdefs.ErrInvalidArgument)
	}
	if err := w.file.Truncate(0); err != nil {
		return err
	}
	if _, err := w.file.Seek(0, 0); err != nil {
		return err
	}
	w.digester.Hash().Reset()
	w.status.Offset = 0
	return nil
}

// Commit compares size and digest and puts the blob onto the stage. Nothing is
// flushed.
func (w *writer) Commit(ctx context.Context, size int64, expected digest.Digest, opts ...content.Opt) (err error) {
	defer func() { err = errors.Join(err, w.Close()) }()
	info := content.Info{Digest: w.Digest(), Size: w.status.Offset, CreatedAt: w.status.StartedAt, UpdatedAt: time.Now()}
	for _, opt := range opts {
		if err := opt(&info); err != nil {
			return err
		}
	}
	switch {
	case w.file == nil:
		return fmt.Errorf("commit a blob that is closed: %w", cerrdefs.ErrFailedPrecondition)
	case size > 0 && size != info.Size:
		return fmt.Errorf("it has %d bytes and should have %d: %w", info.Size, size, cerrdefs.ErrFailedPrecondition)
	case expected != "" && expected != info.Digest:
		return &DigestError{Got: info.Digest, Want: expected}
	}
	if err := w.file.Chmod(0o444); err != nil {
		return err
	}
	if err := w.stage.blobs.place(w.file.Name(), info.Digest); err != nil {
		return err
	}
	file := w.file
	w.file = nil
	return errors.Join(file.Close(), w.stage.add(ctx, info))
}

// Close deletes what was not committed.
func (w *writer) Close() error {
	if w.file == nil {
		return nil
	}
	err := errors.Join(w.file.Close(), os.Remove(w.file.Name()))
	w.file = nil
	return err
}
