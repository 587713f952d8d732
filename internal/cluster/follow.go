package cluster

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Query says which objects of a resource to follow.
type Query struct {
	From      schema.GroupVersionResource
	Namespace string          // empty for all, and for what is in none
	Selector  fields.Selector // nil for all
	// Retry is how a watch that fails begins again; the zero value is half a
	// second at first, and ten at last.
	Retry wait.Backoff
	Log   *slog.Logger // nil for none
}

// Follow makes a store of what keep makes of objects like that one, and a function
// that keeps it fresh until its context ends. Lists are read as the API server has
// them in memory, never older than what was read before.
func Follow[O object, T any](client *Client, q Query, like O, keep func(O) T) (*Store[T], func(context.Context)) {
	from := source[O, T]{
		from: q.From, namespace: q.Namespace, selector: q.Selector, recent: true, like: like, strip: itself[O], keep: keep,
	}
	if q.Retry.Duration > 0 {
		from.retry = &q.Retry
	}
	if q.Log == nil {
		q.Log = slog.New(slog.DiscardHandler)
	}
	s := newStore[T](q.From.Resource, q.Log)
	f := &feed[O, T]{from, s}
	return s, func(ctx context.Context) { f.run(ctx, client) }
}
