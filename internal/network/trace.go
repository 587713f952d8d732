package network

import (
	"context"

	"fairlead.run/internal/pod"
)

// Traces names the pods that have an entry and are not known. An entry may be
// of an earlier boot, so it does not say that the pod exists.
func (l *Ledger) Traces(_ context.Context, known func(id string) bool) ([]pod.Trace, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []pod.Trace
	for id, e := range l.entries {
		if e.State != Damaged && !known(string(id)) {
			out = append(out, pod.Trace{Pod: id, Metadata: e.Request.Metadata, Labels: e.Request.Labels, Made: e.Created, Durable: true})
		}
	}
	return out, nil
}

// Traces are those of the ledger.
func (s *Switch) Traces(ctx context.Context, known func(id string) bool) ([]pod.Trace, error) {
	return s.ledger.Traces(ctx, known)
}
