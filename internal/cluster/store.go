package cluster

import (
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Status is how fresh the memory of one resource is.
type Status struct {
	Resource string
	// Synced says that it has been read as a whole at least once, or that the API
	// server was heard to have no such resource.
	Synced bool
	// Absent says that the API server has no such resource: its CRD is missing.
	Absent  bool
	Objects int
	// Heard is when the API server last said something: an object, a list, or
	// that nothing has changed, which it does about once a minute.
	Heard time.Time
	// Trouble is why the last request for it failed; empty if it did not.
	Trouble string
}

// Store is what is known of one resource. What it returns is its own: read only.
type Store[T any] struct {
	resource string
	optional bool // its absence is like an empty list
	log      *slog.Logger

	mu       sync.RWMutex
	objects  map[string]T
	revision uint64
	status   Status
	changed  []func(key string, old, now T)
	changes  chan struct{}
}

func newStore[T any](resource string, log *slog.Logger) *Store[T] {
	return &Store[T]{resource: resource, log: log, objects: map[string]T{}, changes: make(chan struct{}, 1)}
}

// Get is the object of that name, or namespace/name; nil if there is none.
func (s *Store[T]) Get(key string) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key]
}

// Names lists the keys of all objects, in no order.
func (s *Store[T]) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]string, 0, len(s.objects))
	for key := range s.objects {
		out = append(out, key)
	}
	return out
}

// List is all objects, in no order.
func (s *Store[T]) List() []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]T, 0, len(s.objects))
	for _, o := range s.objects {
		out = append(out, o)
	}
	return out
}

// Revision is another whenever an object may be: what was worked out of all of
// them holds as long as it is the same.
func (s *Store[T]) Revision() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// Status says how fresh all this is.
func (s *Store[T]) Status() Status {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := s.status
	out.Resource, out.Objects = s.resource, len(s.objects)
	return out
}

// OnChange has f called for each object that comes, changes or goes; what was not
// there, or is no more, is nil. It is for before Run. F must not call the store.
func (s *Store[T]) OnChange(f func(key string, old, now T)) {
	s.changed = append(s.changed, f)
}

// Changes has something in it when an object may have come, changed or gone since
// it was last read from, and when a list has been read. It is for one reader.
func (s *Store[T]) Changes() <-chan struct{} { return s.changes }

// revised notes that an object may be another. The caller holds the lock.
func (s *Store[T]) revised() {
	s.revision++
	select {
	case s.changes <- struct{}{}:
	default: // the reader has one to come
	}
}

// set puts an object in.
func (s *Store[T]) set(key string, now T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[key]
	s.objects[key] = now
	s.revised()
	s.tell(key, old, now)
}

// remove takes an object out.
func (s *Store[T]) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
	s.revised()
}

func (s *Store[T]) drop(key string) {
	if old, ok := s.objects[key]; ok {
		var none T
		delete(s.objects, key)
		s.tell(key, old, none)
	}
}

func (s *Store[T]) tell(key string, old, now T) {
	for _, f := range s.changed {
		f(key, old, now)
	}
}

// replace makes these objects all that there are.
func (s *Store[T]) replace(all map[string]T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		if _, ok := all[key]; !ok {
			s.drop(key)
		}
	}
	for key, now := range all {
		old := s.objects[key]
		s.objects[key] = now
		s.tell(key, old, now)
	}
	s.status.Synced = true
	s.revised()
}

// heard notes that the API server has said something.
func (s *Store[T]) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Heard = time.Now()
}

// answered notes how a request ended. That there is no such resource empties the
// store: the objects went with their CRD.
func (s *Store[T]) answered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.status
	if err == nil {
		s.status.Heard, s.status.Trouble, s.status.Absent = time.Now(), "", false
		if was.Absent {
			s.log.Info("resource is served now", "resource", s.resource)
		}
		return
	}
	if dismissed(err) {
		return
	}
	s.status.Trouble = err.Error()
	if !apierrors.IsNotFound(err) {
		if was.Trouble == "" {
			s.log.Warn("cannot read resource, and try again", "resource", s.resource, "error", err)
		}
		return
	}
	if !s.optional {
		if was.Trouble == "" {
			s.log.Warn("the API server has no such resource; try again", "resource", s.resource, "error", err)
		}
		return
	}
	s.status.Heard, s.status.Absent, s.status.Synced = time.Now(), true, true
	if was.Absent {
		return
	}
	s.log.Warn("the API server has no such resource, so there are no objects of it; is its CRD installed?", "resource", s.resource)
	for key := range s.objects {
		s.drop(key)
	}
	s.revised()
}

// dismissed says that an error is part of the protocol: the version to go on from
// is too old, or the server asks for a list instead of a stream.
func dismissed(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
