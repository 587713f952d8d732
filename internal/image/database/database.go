// Package database opens the bbolt files of the image store, after it has made
// sure that they are whole. It does not know what is in them.
package database

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/filelock"
)

// Both databases commit with a flush. Without it (bbolt's NoSync) a power cut
// can tear pages that older, finished pulls live in, and the node would come
// up with no images and a question to its owner. Nothing on the way from
// CreateContainer to a running process writes to either of them, so the flushes
// are paid by pulls and removals alone.

// lockWait is how long Open waits for another process to let go of the store.
const lockWait = 3 * time.Second

// Open opens the bbolt file, after it has been read through once.
func Open(path string) (*bolt.DB, error) {
	if err := Verify(path); err != nil {
		return nil, err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait})
	if err != nil {
		return nil, databaseError(path, err)
	}
	return db, nil
}

// Verify reads every record of the file. bbolt notices damage only
// when it stumbles over it, and then panics or faults on the mapped file; here
// that becomes an error, before anything relies on the file.
func Verify(path string) (err error) {
	if _, serr := os.Stat(path); errors.Is(serr, fs.ErrNotExist) {
		return nil
	}
	if _, err := filelock.Reclaim(path); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged(path, fmt.Sprint(p))
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait, ReadOnly: true})
	if err != nil {
		return databaseError(path, err)
	}
	defer func() { _ = db.Close() }()
	return db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return readBucket(b) })
	})
}

func readBucket(b *bolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		if v != nil {
			return nil
		}
		return readBucket(b.Bucket(k))
	})
}

func databaseError(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("open %s: another process holds it; stop the other fairlead or give this one another --root: %w",
			path, errdefs.ErrUnavailable)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch),
		errors.Is(err, berrors.ErrInvalidMapping):
		return damaged(path, err.Error())
	}
	return fmt.Errorf("open %s: %w", path, err)
}

func damaged(path, how string) error {
	return fmt.Errorf("read %s: the image database is damaged (%s). Images can be pulled again: "+
		"stop all containers, move the folder that holds this file away and start anew: %w", path, how, errdefs.ErrInternal)
}
