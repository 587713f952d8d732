package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/internal/node/volume/growth"
)

// growEvery is how often a claim is looked at whether it has become larger. Nobody tells
// a node of that.
const growEvery = 2 * time.Minute

// growingAgain is when to look again at a volume whose driver is at it.
const growingAgain = 30 * time.Second

// Growth says in claims how it stands with making what is mounted larger.
type Growth interface {
	// Begins is that this node is at it. It returns the claim as it is then.
	Begins(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error)
	// Done is that what is mounted has that size now.
	Done(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error
	// Refused is why a driver has not done it; with never it is not to be tried again, and who
	// has asked for that size has to ask for another one.
	Refused(ctx context.Context, claim *corev1.PersistentVolumeClaim, why error, never bool) error
	// Tell tells of it by an event of the pod and one of the claim. It must not wait.
	Tell(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, reason, message string)
}

// grow has a driver make a volume that is mounted as large as its PersistentVolume is, if
// the claim says that it is not. How large it is on this node outlives the agent: the claim may
// say meanwhile what another node has done.
func (s *Set) grow(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, m *mounted) error {
	noted := s.around.CSI.Size(m.driven.Target)
	if m.grown.Is.IsZero() {
		m.grown.Is = *resource.NewQuantity(noted, resource.BinarySI)
	}
	err := s.growBy(ctx, m.grown.Next(pvc, pv), pvc, pv, m)
	if is := m.grown.Is.Value(); is != noted {
		err = errors.Join(err, s.around.CSI.NoteSize(m.driven.Target, is))
	}
	return err
}

// growBy takes a step, if there is one.
func (s *Set) growBy(ctx context.Context, step *growth.Step, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, m *mounted) error {
	if step == nil {
		return nil
	}
	var err error
	if step.Tracked {
		if pvc, err = s.beginsToGrow(ctx, pvc); err != nil {
			return err
		}
	}
	did, err := s.growOnce(ctx, *m.driven, step.Size.Value())
	if err == nil && !did && step.Tracked {
		err = fmt.Errorf("CSI driver %s makes no volumes larger on nodes, and the claim waits for that: %w", m.driven.Driver, errdefs.ErrUnimplemented)
	}
	if err != nil {
		return s.refusedToGrow(ctx, pvc, m.grown.Refuse(*step, pvc, err), err)
	}
	m.grown.Is = step.Size
	if !did {
		return nil
	}
	s.around.Growth.Tell(s.spec.Pod, pvc, "FileSystemResizeSuccessful", fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", pv.Name, s.spec.Pod.Spec.NodeName))
	if step.Elsewhere {
		return nil
	}
	ctx, done := s.soon(ctx)
	defer done()
	return s.around.Growth.Done(ctx, pvc, step.Size)
}

// growOnce has the driver do it. What runs has the volume as it is, and does not wait for long.
func (s *Set) growOnce(ctx context.Context, v csi.Volume, size int64) (bool, error) {
	if s.around.Runs {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, giveAgain)
		defer cancel()
	}
	return s.around.CSI.Expand(ctx, v, size)
}

func (s *Set) beginsToGrow(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	ctx, done := s.soon(ctx)
	defer done()
	return s.around.Growth.Begins(ctx, pvc)
}

// refusedToGrow says in the claim what a driver has refused, where that was its last word.
func (s *Set) refusedToGrow(ctx context.Context, pvc *corev1.PersistentVolumeClaim, refused growth.Refusal, err error) error {
	if !refused.Last {
		return err
	}
	ctx, done := s.soon(ctx)
	defer done()
	return errors.Join(err, s.around.Growth.Refused(ctx, pvc, err, refused.Never))
}

func (s *Set) boundToSoon(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	ctx, done := s.soon(ctx)
	defer done()
	return s.boundTo(ctx, pvc)
}

// regrow looks after growEvery whether a claim was made larger, and says when to look
// again.
func (s *Set) regrow(ctx context.Context, v *corev1.Volume, m *mounted) (time.Time, error) {
	if time.Now().Before(m.grows) {
		return m.grows, nil
	}
	m.grows = time.Now().Add(growEvery)
	pvc, err := s.findClaimSoon(ctx, v)
	if err != nil {
		return m.grows, nil // it is being deleted, or nobody can be asked now: the pod goes on
	}
	want, has := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	if want.Cmp(has) <= 0 && has.Cmp(m.grown.Is) <= 0 {
		return m.grows, nil
	}
	pv, err := s.boundToSoon(ctx, pvc)
	if err == nil {
		err = s.grow(ctx, pvc, pv, m)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		m.grows = time.Now().Add(growingAgain)
	}
	if err != nil {
		return m.grows, fmt.Errorf("claim %s: %w", pvc.Name, err)
	}
	return m.grows, nil
}
