package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

// Architectures are those of the nodes that a payload goes to: that of the pool, or all
// that the payload has programs for where there is no pool.
func Architectures(pool *v1alpha1.WorkerPool, p *payload.RuntimePayload) []string {
	if pool != nil && pool.Spec.Architecture != "" {
		return []string{pool.Spec.Architecture}
	}
	return p.Architectures
}

// Fits says that a node is of one of these architectures. Where there are none nobody
// minds, and a node that has not told yet is waited for.
func Fits(n *corev1.Node, of []string) bool {
	is := architecture(n)
	return is == "" || len(of) == 0 || slices.Contains(of, is)
}

// ForMisfits is what to do about nodes of another one.
const ForMisfits = "give them a pool of their own with their architecture, and have this one choose its nodes by the label " + corev1.LabelArchStable + " as well"

// architecture is that of a node; "" if it has not told yet.
func architecture(n *corev1.Node) string {
	if is := n.Labels[corev1.LabelArchStable]; is != "" {
		return is // the scheduler goes by it
	}
	return n.Status.NodeInfo.Architecture
}
