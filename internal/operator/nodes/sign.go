package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// Read is what a pod of the installer says of its node, and how its last attempt
// ended, if it has ended one.
func Read(p *corev1.Pod) (Sign, *payload.InstallResult) {
	if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}) {
		return Done, nil
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		for _, ended := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if ended == nil {
				continue
			}
			r, err := payload.DecodeResult([]byte(ended.Message))
			if err != nil {
				break // it was killed, or is another program: nothing is known
			}
			return signOf(r, names.PhaseOf(p.Labels[names.Work])), r
		}
	}
	return Unknown, nil
}

// signOf is what a result means for what was asked.
func signOf(r *payload.InstallResult, work names.PhaseOf) Sign {
	switch {
	case work == names.Cleanup && r.State == payload.Removed, work == names.Install && r.State == payload.Installed:
		return Unknown // it was so then; readiness says whether it is so now
	case r.State == payload.Failed:
		return Broken
	}
	return Unknown // rolled back or refused: the node is as it was before
}
