package store

import (
	"context"
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

var _ pod.Keeper = (*Store)(nil)

// Held lists the records as they are in the file, readable or not.
func (s *Store) Held(ctx context.Context, _ []*pod.Record) ([]pod.Held, error) {
	records, broken, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	out := []pod.Held{}
	for _, r := range records {
		out = append(out, held(r.ID))
	}
	for id := range broken {
		out = append(out, held(id))
	}
	return out, nil
}

func held(id pod.ID) pod.Held {
	return pod.Held{Kind: pod.KindRecord, Name: string(id), Owner: string(id)}
}

// Wants is the record itself: what is only in memory would end with the daemon.
// Of a pod whose record was lost there is none.
func (s *Store) Wants(r *pod.Record) []pod.Held {
	if r.Version == 0 {
		return nil
	}
	return []pod.Held{held(r.ID)}
}

// Drop refuses: a record that nobody has in memory is read at the next start.
func (s *Store) Drop(_ context.Context, h pod.Held) error {
	return fmt.Errorf("delete record %s: the next start of the daemon reads it: %w", h.Name, errdefs.ErrPrecondition)
}

// Restore writes a record again.
func (s *Store) Restore(ctx context.Context, r *pod.Record, _ pod.Held) error {
	again := *r // shared with others; Put notes the version in it
	return s.Put(ctx, &again)
}
