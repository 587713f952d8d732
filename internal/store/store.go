// Package store keeps the record of every pod: one key, one record.
//
// The file is bbolt in the state directory, which is a tmpfs. Containers do not
// outlive the boot, so neither does the record, and a write costs no disk
// flush. What must outlive the boot (images, network attachments) is kept by
// the drivers under the root directory, not here.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// File is the name of the database in the state directory.
const File = "state.db"

var podsBucket = []byte("pods")

// Store is an open database. Its methods may be called by several goroutines.
type Store struct {
	db *bbolt.DB
}

// Open opens or makes the database in dir. A second process that has it open
// is an error that wraps errdefs.ErrUnavailable.
func Open(dir string) (*Store, error) {
	path := filepath.Join(dir, File)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        time.Second,
		NoGrowSync:     true,
		NoFreelistSync: true,
		NoSync:         true, // a tmpfs has nothing to flush to; the page cache survives us
		FreelistType:   bbolt.FreelistMapType,
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("open pod records %s: another fairlead daemon uses this state directory; stop it or choose another --state: %w", path, errdefs.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("open pod records %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(podsBucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare pod records %s: %w", path, err), db.Close())
	}
	return &Store{db: db}, nil
}

// Close ends all transactions and releases the file.
func (s *Store) Close() error { return s.db.Close() }

// Put writes the record of one pod, new or changed.
func (s *Store) Put(_ context.Context, r *pod.Record) error {
	r.Version = pod.RecordVersion
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of pod %s: %w", r.ID.Short(), err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(podsBucket).Put([]byte(r.ID), value)
	})
	if err != nil {
		return fmt.Errorf("write record of pod %s: %w", r.ID.Short(), err)
	}
	return nil
}

// Delete forgets a pod. Deleting what does not exist is no error.
func (s *Store) Delete(_ context.Context, id pod.ID) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(podsBucket).Delete([]byte(id))
	})
	if err != nil {
		return fmt.Errorf("delete record of pod %s: %w", id.Short(), err)
	}
	return nil
}

// Load reads all records. One that cannot be read is in broken and hides no
// other; it stays in the file until Delete.
func (s *Store) Load(_ context.Context) (records []*pod.Record, broken map[pod.ID]error, err error) {
	broken = map[pod.ID]error{}
	err = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(podsBucket).ForEach(func(key, value []byte) error {
			r, err := decode(value)
			if err == nil && r.ID != pod.ID(key) {
				err = fmt.Errorf("its id is %q: %w", r.ID, errdefs.ErrInternal)
			}
			if err != nil {
				broken[pod.ID(key)] = fmt.Errorf("read record of pod %s: %w", pod.ID(key).Short(), err)
				return nil
			}
			records = append(records, r)
			return nil
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read pod records %s: %w", s.db.Path(), err)
	}
	return records, broken, nil
}
