// Package staging takes in the blobs of an image that is on its way here: their
// files at once, their records all together when the image gets its name. Until
// then no flush and no transaction is made for any of them.
//
// What survives a crash is the caller's concern: it flushes the files before it
// calls Register, and when it starts, deletes files that are on nobody's record.
package staging

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
)

// Blobs are the files of the content store. Those that a Stage holds are not
// deleted, on record or not.
type Blobs struct {
	content.Store // reads, walks, and knows where files are
	dir           string

	mu   sync.Mutex
	held map[digest.Digest]int // by how many stages
}

// Open makes the store below dir.
func Open(dir string) (*Blobs, error) {
	files, err := local.NewStore(dir)
	if err != nil {
		return nil, err
	}
	return &Blobs{Store: files, dir: dir, held: map[digest.Digest]int{}}, nil
}

// Clear deletes blobs that were half there when an earlier process ended: nobody
// takes up a download of another process. It is for before the first Stage.
func (b *Blobs) Clear() error {
	for _, dir := range []string{b.incoming(), filepath.Join(b.dir, "ingest")} { // ingest is local's own, and older releases'
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove broken downloads: %w", err)
		}
	}
	return nil
}

func (b *Blobs) incoming() string { return filepath.Join(b.dir, "incoming") }

func (b *Blobs) file(d digest.Digest) string {
	return filepath.Join(b.dir, "blobs", d.Algorithm().String(), d.Encoded())
}

// Delete deletes the file of a blob, unless a stage holds it. That is no error:
// what the stage makes of it decides.
func (b *Blobs) Delete(ctx context.Context, d digest.Digest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[d] > 0 {
		return nil
	}
	return b.Store.Delete(ctx, d)
}

// hold keeps the file of a blob, if there is one of that size in bytes; 0 stands
// for any. The size is returned.
func (b *Blobs) hold(d digest.Digest, size int64) (int64, bool, error) {
	if err := d.Validate(); err != nil { // it becomes a path
		return 0, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	info, err := os.Stat(b.file(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case size != 0 && info.Size() != size:
		return 0, false, nil
	}
	b.held[d]++
	return info.Size(), true, nil
}

// place moves a file to where the blob belongs, and holds it.
func (b *Blobs) place(file string, d digest.Digest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	to := b.file(d)
	err := os.Rename(file, to)
	if errors.Is(err, fs.ErrNotExist) { // the first blob of its algorithm
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.Rename(file, to)
		}
	}
	if err == nil {
		b.held[d]++
	}
	return err
}

// release lets go of a blob. If nobody else holds it and it is on no record, its
// file is deleted.
func (b *Blobs) release(ctx context.Context, d digest.Digest, records content.Manager) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[d]--; b.held[d] > 0 {
		return nil
	}
	delete(b.held, d)
	if _, err := records.Info(ctx, d); !isNotFound(err) {
		return err
	}
	if err := b.Store.Delete(ctx, d); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove blob %s: %w", d, err)
	}
	return nil
}
