package handlers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// ReasonGroups is a kubelet's reason for a pod that CheckGroups refuses.
const ReasonGroups = "SupplementalGroupsPolicyNotSupported"

// CheckGroups says why a pod cannot have its supplementalGroupsPolicy: a runtime that does not
// know Strict would leave the containers the groups that their images give them.
func (s *Set) CheckGroups(pod *corev1.Pod) error {
	sc := pod.Spec.SecurityContext
	if s.strictGroups || sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict {
		return nil
	}
	return fmt.Errorf("SupplementalGroupsPolicy=%s is not supported in this node, as its container runtime would add groups of the image; update the runtime, or ask for %s: %w",
		corev1.SupplementalGroupsPolicyStrict, corev1.SupplementalGroupsPolicyMerge, errdefs.ErrUnimplemented)
}
