package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
)

// Growth says in claims how it stands with making their volumes larger on the node. A claim that
// has changed meanwhile is not written: what is to be said follows from what it was.
type Growth struct{ client *cluster.Client }

// Growth writes into claims.
func (o *Objects) Growth() Growth { return Growth{o.client} }

// resizes says whether a condition is about a size that is asked for, of which none is left when
// the volume has it.
func resizes(c corev1.PersistentVolumeClaimCondition) bool {
	switch c.Type {
	case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}

// Begins says that the node makes the volume larger now.
func (g Growth) Begins(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizeInProgress {
		return claim, nil
	}
	return g.patch(ctx, claim, map[string]any{"allocatedResourceStatuses": map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizeInProgress}})
}

// Done says that what the claim is bound to has that size, also on the node. Nobody
// has to resize it any more then.
func (g Growth) Done(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	_, err := g.patch(ctx, claim, map[string]any{
		"capacity":   map[string]any{"storage": size.String()},
		"conditions": append([]corev1.PersistentVolumeClaimCondition{}, slices.DeleteFunc(slices.Clone(claim.Status.Conditions), resizes)...), "allocatedResourceStatuses": map[string]any{"storage": nil},
	})
	return err
}

// Refused says why the volume is not larger on the node; with never that it will not be, so that a
// controller may go back to another size.
func (g Growth) Refused(ctx context.Context, claim *corev1.PersistentVolumeClaim, why error, never bool) error {
	is := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Message: fmt.Sprintf("the node could not make the volume larger: %v", why),
	}
	conditions := slices.Clone(claim.Status.Conditions)
	i := slices.IndexFunc(conditions, func(c corev1.PersistentVolumeClaimCondition) bool { return c.Type == is.Type })
	switch {
	case i < 0:
		conditions = append(conditions, is)
	case !never && conditions[i].Status == is.Status && conditions[i].Message == is.Message:
		return nil
	default:
		conditions[i] = is
	}
	st := map[string]any{"conditions": conditions}
	if never {
		st["allocatedResourceStatuses"] = map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizeInfeasible}
	}
	_, err := g.patch(ctx, claim, st)
	return err
}

func (g Growth) patch(ctx context.Context, claim *corev1.PersistentVolumeClaim, st map[string]any) (*corev1.PersistentVolumeClaim, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion}, "status": st})
	if err != nil {
		return nil, err
	}
	out := &corev1.PersistentVolumeClaim{}
	err = g.client.REST(corev1.SchemeGroupVersion).Patch(types.MergePatchType).Namespace(claim.Namespace).Resource("persistentvolumeclaims").Name(claim.Name).
		SubResource("status").Body(patch).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("say in claim %s/%s how large it is: %w", claim.Namespace, claim.Name, err)
	}
	return out, nil
}
