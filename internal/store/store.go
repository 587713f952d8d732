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
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// File is the name of the database in the state directory.
const File = "state.db"

var podsBucket = []byte("pods")

// Store is an open database. Its methods may be called by several goroutines.
type Store struct {
	db     *bbolt.DB
	lock   *os.File // the folder's
	aside  string   // where a damaged file was put
	damage error
}

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
