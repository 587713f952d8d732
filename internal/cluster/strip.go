package cluster

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/api/v1alpha1"
)

// lastApplied is what kubectl apply leaves: the object once more, as text.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// bare is metadata without what only other programs look at.
func bare(m metav1.ObjectMeta) metav1.ObjectMeta {
	delete(m.Annotations, lastApplied)
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: m.Labels, Annotations: m.Annotations,
	}
}

func stripClass(c *nodev1.RuntimeClass) *nodev1.RuntimeClass {
	c.ObjectMeta = bare(c.ObjectMeta)
	return c
}

func stripPolicy(p *v1alpha1.RuntimeClassPolicy) *v1alpha1.RuntimeClassPolicy {
	p.ObjectMeta = bare(p.ObjectMeta)
	return p
}

func stripNamespace(n *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels}}
}

func stripNode(n *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: bare(n.ObjectMeta),
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable, ProviderID: n.Spec.ProviderID},
		Status: corev1.NodeStatus{
			Allocatable: n.Status.Allocatable, Conditions: n.Status.Conditions,
			RuntimeHandlers: n.Status.RuntimeHandlers, Features: n.Status.Features,
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: n.Status.NodeInfo.KubeletVersion, OSImage: n.Status.NodeInfo.OSImage},
		},
	}
}
