// Package growth decides what a node has to do for a volume that is to be larger, by what its claim
// says. It does nothing itself.
package growth

import (
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/errdefs"
)

// annotationNoGrowth of a claim is that nodes have nothing to do for it to become larger.
const annotationNoGrowth = "volume.kubernetes.io/node-expansion-not-required"

// Size is how large a volume is on this node.
type Size struct {
	Is      resource.Quantity // zero if that is not known
	stays   resource.Quantity // the driver does not make it that large while it is mounted
	refused bool              // the driver has refused for good once
}

// Step is what there is to do for a volume.
type Step struct {
	Size resource.Quantity
	// Elsewhere is that another node has made the volume larger, which every node has to do that
	// has it mounted; the claim says all already.
	Elsewhere bool
	Tracked   bool // the claim says step by step how it stands
}

// Next is what there is to do, or nil. A claim of which a controller says how it stands is not
// touched but when it is the node's turn.
func (g *Size) Next(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) *Step {
	has, want := pvc.Status.Capacity[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
	at := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	allocated, tracked := pvc.Status.AllocatedResources[corev1.ResourceStorage]
	if has.IsZero() {
		return nil
	}
	if g.Is.IsZero() {
		g.Is = has
	}
	if at == "" && has.Cmp(g.Is) > 0 {
		_, none := pvc.Annotations[annotationNoGrowth]
		if slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany) && !none && has.Cmp(g.stays) != 0 {
			return &Step{Size: has, Elsewhere: true}
		}
		g.Is = has
	}
	switch {
	case want.Cmp(has) <= 0:
		return nil
	case at == "" && !tracked:
		if want.Cmp(g.stays) == 0 {
			return nil
		}
		return &Step{Size: want}
	case at != corev1.PersistentVolumeClaimNodeResizePending && at != corev1.PersistentVolumeClaimNodeResizeInProgress:
		return nil
	case !tracked:
		allocated = want
	}
	if allocated.Cmp(g.stays) == 0 {
		return nil
	}
	return &Step{Size: allocated, Tracked: true}
}

// Refusal is what to say in the claim of an error.
type Refusal struct {
	Last  bool // the driver has answered, and is not at it any more
	Never bool // it will not do it, however often it is asked
}

// Refuse remembers that a driver has not made the volume larger.
func (g *Size) Refuse(step Step, pvc *corev1.PersistentVolumeClaim, err error) Refusal {
	code := status.Code(err)
	if code == codes.FailedPrecondition { // it is larger when it is mounted anew
		g.stays = step.Size
	}
	if !step.Tracked && !step.Elsewhere || !isLast(code, err) {
		return Refusal{}
	}
	asked := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	never := code == codes.InvalidArgument || code == codes.OutOfRange || code == codes.NotFound || g.refused && asked.Cmp(step.Size) != 0
	g.refused = true
	return Refusal{Last: true, Never: never}
}

// isLast says whether an error is the answer of a driver that is not at it any more.
func isLast(code codes.Code, err error) bool {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	case codes.Unknown: // which is also what is no answer
		return errors.Is(err, errdefs.ErrUnimplemented)
	}
	return true
}
