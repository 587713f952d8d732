package agent

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/view"
)

// told is an error of which an event tells already.
type told struct{ error }

// Unwrap is the error itself.
func (t *told) Unwrap() error { return t.error }

// told has an event tell what has failed.
func (w *worker) told(reason string, err error) error {
	w.event(corev1.EventTypeWarning, reason, view.Message(err)+hostpath.Advice(err))
	return &told{err}
}

// complain tells what keeps a pod from being as it should be, if nothing has yet. That
// the runtime is away is a condition of the node, and no event of each of its pods; what
// was cut off has not failed. Counting equal events is for who writes them.
func (w *worker) complain(err error) {
	known := (*told)(nil)
	code := status.Code(err)
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || code == codes.Canceled || code == codes.Unavailable {
		return
	}
	w.event(corev1.EventTypeWarning, "FailedSync", view.Message(err)+hostpath.Advice(err))
}
