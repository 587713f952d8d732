// Package stage lets whoever does a part of an operation tell which part that
// is, without knowing who wants to know: it goes by the context.
//
// It is for people who ask what a slow operation is at. Nothing may depend on
// it, and it is no trace: only the last stage is known.
package stage

import "context"

type key struct{}

// With returns a context whose stages are told to enter, which may be called by
// several goroutines.
func With(ctx context.Context, enter func(stage string)) context.Context {
	return context.WithValue(ctx, key{}, enter)
}

// Enter tells what the operation that ctx belongs to, if any, is doing now.
func Enter(ctx context.Context, stage string) {
	if enter, ok := ctx.Value(key{}).(func(string)); ok {
		enter(stage)
	}
}
