package join

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestSoon takes nothing for missing but what the API server says is not there, and waits
// no longer than the pod does.
func TestSoon(t *testing.T) {
	away := errors.New("the API server is away")
	object := &corev1.Secret{}
	for name, c := range map[string]struct {
		says, want error
		found      bool
	}{
		"there":      {found: true},
		"missing":    {says: apierrors.NewNotFound(corev1.Resource("secrets"), "s")},
		"forbidden":  {says: apierrors.NewForbidden(corev1.Resource("secrets"), "s", away), want: apierrors.NewForbidden(corev1.Resource("secrets"), "s", away)},
		"unreadable": {says: away, want: away},
	} {
		got, err := soon(t.Context(), func(context.Context) (*corev1.Secret, error) { return object, c.says })
		if (got != nil) != c.found || (err == nil) != (c.want == nil) || err != nil && err.Error() != c.want.Error() {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	leaves, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := soon(leaves, func(ctx context.Context) (*corev1.Secret, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
