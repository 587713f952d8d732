package staging

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	cerrdefs "github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Stage is the content store as one image sees it that is on its way: what is on
// record, and above that what has arrived and what was said about it. Its
// methods may be called concurrently.
type Stage struct {
	content.Store // what is on record
	blobs         *Blobs

	mu     sync.Mutex
	staged map[digest.Digest]content.Info
	order  []digest.Digest // of arrival
}

var _ content.Store = (*Stage)(nil)

// New makes a stage before the content that is on record. Release has to follow.
func (b *Blobs) New(records content.Store) *Stage {
	return &Stage{Store: records, blobs: b, staged: map[digest.Digest]content.Info{}}
}

// Info is what is known about a blob.
func (s *Stage) Info(ctx context.Context, d digest.Digest) (content.Info, error) {
	if info, ok := s.get(d); ok {
		return info, nil
	}
	return s.Store.Info(ctx, d)
}

func (s *Stage) get(d digest.Digest) (content.Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, ok := s.staged[d]
	info.Labels = maps.Clone(info.Labels)
	return info, ok
}

// ReaderAt reads a blob.
func (s *Stage) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	if _, ok := s.get(desc.Digest); ok {
		return s.blobs.Store.ReaderAt(ctx, desc)
	}
	return s.Store.ReaderAt(ctx, desc)
}

// Update changes labels. Only fields that name labels can be given.
func (s *Stage) Update(ctx context.Context, info content.Info, fields ...string) (content.Info, error) {
	there, err := s.adopt(ctx, info.Digest, 0)
	if err != nil {
		return content.Info{}, err
	}
	if !there {
		return content.Info{}, fmt.Errorf("blob %s: %w", info.Digest, cerrdefs.ErrNotFound)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.staged[info.Digest]
	labels := maps.Clone(now.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, f := range fields {
		name, ok := strings.CutPrefix(f, "labels.")
		if !ok {
			return content.Info{}, fmt.Errorf("change %q of blob %s: %w", f, info.Digest, cerrdefs.ErrInvalidArgument)
		}
		if labels[name] = info.Labels[name]; labels[name] == "" {
			delete(labels, name)
		}
	}
	if len(fields) == 0 {
		labels = maps.Clone(info.Labels)
	}
	now.Labels, now.UpdatedAt = labels, time.Now().UTC()
	s.staged[info.Digest] = now
	return now, nil
}

// adopt takes a blob onto the stage whose file is here, of that size in bytes;
// 0 stands for any.
func (s *Stage) adopt(ctx context.Context, d digest.Digest, size int64) (bool, error) {
	if _, ok := s.get(d); ok {
		return true, nil
	}
	found, ok, err := s.blobs.hold(d, size)
	if err != nil || !ok {
		return false, err
	}
	// On record or not: another stage may have brought it.
	info, err := s.Store.Info(ctx, d)
	if isNotFound(err) {
		info, err = content.Info{Digest: d, Size: found}, nil
	}
	if err != nil {
		return false, errors.Join(err, s.blobs.release(ctx, d, s.Store))
	}
	return true, s.add(ctx, info)
}

// add puts a blob onto the stage that was held for it.
func (s *Stage) add(ctx context.Context, info content.Info) error {
	s.mu.Lock()
	if _, twice := s.staged[info.Digest]; twice {
		s.mu.Unlock()
		return s.blobs.release(ctx, info.Digest, s.Store)
	}
	defer s.mu.Unlock()
	s.staged[info.Digest] = info
	s.order = append(s.order, info.Digest)
	return nil
}

// Register puts all blobs of the stage on record. ctx has to carry the
// transaction in which that is done, and no lease.
func (s *Stage) Register(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.order {
		if err := s.register(ctx, s.staged[d]); err != nil {
			return fmt.Errorf("record blob %s: %w", d, err)
		}
	}
	return nil
}

func (s *Stage) register(ctx context.Context, info content.Info) error {
	old, err := s.Store.Info(ctx, info.Digest)
	if err == nil {
		if maps.Equal(old.Labels, info.Labels) {
			return nil
		}
		_, err = s.Store.Update(ctx, content.Info{Digest: info.Digest, Labels: info.Labels}, "labels")
		return err
	}
	if !isNotFound(err) {
		return err
	}
	// The store finds the file of that digest there, and adds the record alone.
	desc := ocispec.Descriptor{Digest: info.Digest, Size: info.Size}
	w, err := s.Store.Writer(ctx, content.WithRef("staged-"+info.Digest.String()), content.WithDescriptor(desc))
	if err != nil {
		return err
	}
	return errors.Join(w.Commit(ctx, info.Size, info.Digest, content.WithLabels(info.Labels)), w.Close())
}

// Release ends the stage: what was not registered is deleted, unless another
// stage has it as well.
func (s *Stage) Release(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, d := range s.order {
		errs = append(errs, s.blobs.release(ctx, d, s.Store))
	}
	s.order = nil
	clear(s.staged)
	return errors.Join(errs...)
}

func isNotFound(err error) bool { return cerrdefs.IsNotFound(err) }
