package telemetry

import "context"

type parentKey struct{}

// WithParent returns a context for what a caller's span is the parent of, which
// traceparent names in the form of W3C Trace Context. Empty is none.
func WithParent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, traceparent)
}

// Parent is what WithParent has set, or "".
func Parent(ctx context.Context) string {
	parent, _ := ctx.Value(parentKey{}).(string)
	return parent
}
