package volume

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/node/volume/csi"
)

// growEvery is how often a claim is looked at whether it has become larger. Nobody tells
// a node of that.
const growEvery = 2 * time.Minute

// Grown says in a claim that what is mounted has that size now.
type Grown func(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error

// grow has a driver make a volume that is mounted as large as its PersistentVolume is, if
// the claim says that it is not.
func (s *Set) grow(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, v csi.Volume) error {
	want, has := pv.Spec.Capacity[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	if has.IsZero() || want.Cmp(has) <= 0 {
		return nil
	}
	if did, err := s.around.CSI.Expand(ctx, v, want.Value()); err != nil || !did {
		return err
	}
	return s.around.Grown(ctx, pvc, want)
}

// regrow looks after growEvery whether a claim was made larger, and says when to look
// again.
func (s *Set) regrow(ctx context.Context, v *corev1.Volume, m *mounted) (time.Time, error) {
	if time.Now().Before(m.grows) {
		return m.grows, nil
	}
	m.grows = time.Now().Add(growEvery)
	pvc, err := s.findClaim(ctx, v)
	if err != nil {
		return m.grows, nil // it is being deleted, or nobody can be asked now: the pod goes on
	}
	want, has := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	if want.Cmp(has) <= 0 {
		return m.grows, nil
	}
	pv, err := s.boundTo(ctx, pvc)
	if err == nil {
		err = s.grow(ctx, pvc, pv, *m.driven)
	}
	if err != nil {
		return m.grows, fmt.Errorf("claim %s: %w", pvc.Name, err)
	}
	return m.grows, nil
}
