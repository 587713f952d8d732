package capacity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/priority"
)

// Resize says whether a pod can have what its specification asks for anew, beside
// the others that run: an empty reason if so, corev1.PodReasonDeferred if it has to
// wait until another one ends, corev1.PodReasonInfeasible if it never can on this
// node (KEP-1287). These are reasons of the condition PodResizePending.
func Resize(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) (reason, message string) {
	if priority.Static(pod) {
		return corev1.PodReasonInfeasible, "In-place resize of static-pods is not supported"
	}
	wanted := *pod
	wanted.Status = corev1.PodStatus{} // what it has so far is not asked for
	if short := fits(&wanted, node, nil); len(short) > 0 {
		s := short[0]
		return corev1.PodReasonInfeasible, fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", s.Resource, s.Requested, s.Capacity)
	}
	if short := fits(&wanted, node, others); len(short) > 0 {
		return corev1.PodReasonDeferred, short[0].refusal().Message
	}
	return "", ""
}
