package transfer

import (
	"context"

	"github.com/containerd/containerd/v2/core/content"

	"fairlead.run/internal/failpoint"
)

var (
	halfFetched  = failpoint.Register("image.half-fetched")
	halfImported = failpoint.Register("image.half-imported")
)

// ForImport is the store as an archive is read into it.
func ForImport(store content.Store) content.Store {
	return &importing{store, passing{store, halfImported}}
}

type importing struct {
	content.Store
	in passing
}

// Writer implements content.Ingester.
func (i *importing) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	return i.in.Writer(ctx, opts...)
}

// passing passes a place in the middle of each blob: with a part of it on the
// disk, and the rest still to come.
type passing struct {
	content.Ingester
	place string
}

// Writer implements content.Ingester.
func (p *passing) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	w, err := p.Ingester.Writer(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &halting{Writer: w, place: p.place}, nil
}

type halting struct {
	content.Writer
	place  string
	passed bool
}

// Write implements content.Writer. Most blobs come in one piece, so it is the
// first that is divided.
func (w *halting) Write(b []byte) (int, error) {
	if w.passed || len(b) < 2 {
		return w.Writer.Write(b)
	}
	w.passed = true
	half, err := w.Writer.Write(b[:len(b)/2])
	if err == nil {
		err = failpoint.Hit(w.place)
	}
	if err != nil {
		return half, err
	}
	rest, err := w.Writer.Write(b[len(b)/2:])
	return half + rest, err
}
