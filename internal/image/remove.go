package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/metadata/boltutil"
	bolt "go.etcd.io/bbolt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image/fault"
	"fairlead.run/internal/image/progress"
	"fairlead.run/internal/image/refs"
)

var (
	nameUnrecorded = failpoint.Register("image.name-unrecorded")
	unrecorded     = failpoint.Register("image.unrecorded")
	collected      = failpoint.Register("image.collected")
)

// Remove takes an image, or one of its names, off this node and frees what
// nothing else needs before it returns.
//
// Given an id, every name of the image goes. Given a name, that name goes, and
// the image with it if no other tag is left. An image that is not here is no
// error. Layers that a container uses stay on disk until it is released.
func (s *Store) Remove(ctx context.Context, ref string) error {
	_, err := s.Untag(ctx, ref)
	return err
}

// Removed is what went with a removal.
type Removed struct {
	Names []string // tags and digests
	ID    string   // of the image, if it went too
}

// Untag is Remove, and says what went.
func (s *Store) Untag(ctx context.Context, ref string) (Removed, error) {
	defer s.follow("remove", ref, progress.Freeing)()
	gone, err := s.unrecord(ctx, ref)
	if err != nil {
		return gone, fmt.Errorf("remove image %s: %w", ref, err)
	}
	// An earlier removal may have failed between the two halves. Who repeats it
	// finds no name any more, and wants the rest done.
	if len(gone.Names) == 0 && gone.ID == "" && !s.owed.Load() {
		return gone, nil
	}
	if err := failpoint.Hit(unrecorded); err != nil {
		return gone, fmt.Errorf("remove image %s: %w", ref, err)
	}
	if err := s.collect(ctx); err != nil {
		return gone, fmt.Errorf("remove image %s: %w", ref, err)
	}
	s.owed.Store(false)
	if err := failpoint.Hit(collected); err != nil {
		return gone, fmt.Errorf("remove image %s: %w", ref, err)
	}
	return gone, nil
}

func (s *Store) unrecord(ctx context.Context, ref string) (gone Removed, err error) {
	s.records.Lock()
	defer s.records.Unlock()
	names, err := s.doomed(ctx, ref)
	if err != nil || len(names) == 0 {
		return gone, err
	}
	before := s.list.Load()
	// All names or none. Once the one that was asked for is gone alone, nobody
	// who repeats the request finds the others.
	err = s.meta.Update(func(tx *bolt.Tx) error {
		return s.deleteAll(boltutil.WithTransaction(s.with(ctx), tx), names)
	})
	if err == nil {
		s.owed.Store(true)
	}
	// After a failure too: the list is never to be older than the records.
	if err := errors.Join(err, s.refresh(ctx)); err != nil {
		return gone, err
	}
	for _, name := range names {
		if refs.KindOf(name) == refs.ID {
			gone.ID = name // if it is in no index, this is all that is known
		} else {
			gone.Names = append(gone.Names, name)
		}
	}
	if img := before.byName[names[0]]; img != nil && s.list.Load().byID[img.ID] == nil {
		gone.ID = img.ID
	}
	return gone, nil
}

func (s *Store) deleteAll(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := s.images().Delete(ctx, name); err != nil && !fault.IsNotFound(err) {
			return fmt.Errorf("delete record %s: %w", name, fault.Local(err))
		}
		if err := failpoint.Hit(nameUnrecorded); err != nil {
			return err
		}
	}
	return nil
}

// doomed lists the names that go when ref is removed.
func (s *Store) doomed(ctx context.Context, ref string) ([]string, error) {
	idx := s.list.Load()
	img, err := idx.find(ref)
	if errors.Is(err, errdefs.ErrNotFound) {
		return s.broken(ctx, ref)
	}
	if err != nil {
		return nil, err
	}
	names := idx.names[img.ID]
	name, err := refs.Normalize(ref)
	if err != nil || idx.byName[name] != img { // ref was an id
		return names, nil
	}
	// Another tag keeps the image. Its digests stay with it, but those of a
	// repository without a tag left go along with the last one.
	repo, kept, tagged := refs.Repository(name), false, false
	for _, n := range names {
		if n == name {
			continue
		}
		switch refs.KindOf(n) {
		case refs.Tag:
			kept = true
			tagged = tagged || refs.Repository(n) == repo
		case refs.Digest:
			kept = kept || refs.Repository(n) != repo || refs.KindOf(name) == refs.Digest
		}
	}
	if !kept {
		return names, nil
	}
	gone := []string{name}
	for _, n := range names {
		if n != name && refs.KindOf(name) == refs.Tag && refs.KindOf(n) == refs.Digest && refs.Repository(n) == repo && !tagged {
			gone = append(gone, n)
		}
	}
	return gone, nil
}

// broken finds records that no image could be read from: they are not in the
// index, but have to be removable.
func (s *Store) broken(ctx context.Context, ref string) ([]string, error) {
	recs, err := s.images().List(s.with(ctx))
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	name, err := refs.Normalize(ref)
	if err != nil {
		name = refs.FullID(ref)
	}
	for _, r := range recs {
		if r.Name == name {
			return []string{name}, nil
		}
	}
	return nil, nil
}
