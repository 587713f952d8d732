package validate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

// Chooses says that a node has all labels that a pool asks for.
func Chooses(p *v1alpha1.WorkerPool, n *corev1.Node) bool {
	for key, value := range p.Spec.NodeSelector {
		if n.Labels[key] != value {
			return false
		}
	}
	return len(p.Spec.NodeSelector) > 0
}

// belongs says that a node is in a pool, or that the pool chooses it and nobody else has it.
func belongs(p *v1alpha1.WorkerPool, n *corev1.Node) bool {
	has := n.Labels[gardener.LabelPool]
	return has == p.Name || has == "" && Chooses(p, n)
}

// Older is the version of a node's kubelet if the node belongs to a pool and the kubelet is
// older than one of version than; "" is none yet.
func Older(than string, p *v1alpha1.WorkerPool, n *corev1.Node) string {
	if !belongs(p, n) {
		return than
	}
	// What cannot be read says nothing; a kubelet that has just come may be silent, too.
	is := n.Status.NodeInfo.KubeletVersion
	v, err := version.ParseGeneric(is)
	if err != nil {
		return than
	}
	if least, err := version.ParseGeneric(than); err == nil && !v.LessThan(least) {
		return than
	}
	return is
}
