// Package priority says how important a pod is to its node: its priority, its
// class of service, and whether it is critical. It decides nothing; admission,
// eviction and shutdown do.
package priority

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/podspec"
)

// The annotations by which the kubelet marks where a pod comes from.
const (
	SourceAnnotation = "kubernetes.io/config.source"
	MirrorAnnotation = "kubernetes.io/config.mirror"
	sourceAPI        = "api"
)

// The classes that every cluster has, and where their range begins.
const (
	SystemCritical = 2_000_000_000

	clusterCriticalClass = "system-cluster-critical"
	nodeCriticalClass    = "system-node-critical"
	nodeCritical         = SystemCritical + 1000
)

// Of is the pod's priority. Where nobody has resolved the name of its class, only
// the classes that every cluster has are known.
func Of(pod *corev1.Pod) int32 {
	if p := pod.Spec.Priority; p != nil {
		return *p
	}
	switch pod.Spec.PriorityClassName {
	case nodeCriticalClass:
		return nodeCritical
	case clusterCriticalClass:
		return SystemCritical
	}
	return 0
}

// Static says whether the pod comes from elsewhere than an API server. A mirror
// pod is the picture of one.
func Static(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[MirrorAnnotation]; mirror {
		return true
	}
	source, told := pod.Annotations[SourceAnnotation]
	return told && source != sourceAPI
}

// Critical says whether the node keeps the pod whatever happens to others.
func Critical(pod *corev1.Pod) bool { return Static(pod) || Of(pod) >= SystemCritical }

// Before says whether one pod may displace another.
func Before(a, b *corev1.Pod) bool {
	return Critical(a) && !Critical(b) || Of(a) > Of(b)
}

// Class is the pod's class of service: what an API server has found it to be, else
// what follows from what it asks for.
func Class(pod *corev1.Pod) corev1.PodQOSClass {
	if c := pod.Status.QOSClass; c != "" {
		return c
	}
	return podspec.QOS(pod)
}
