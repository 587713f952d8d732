package capacity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	sums "k8s.io/component-helpers/resource"
)

// DefaultWhole completes what a pod asks for as a whole, if that is anything, as an API server
// does (KEP-2837): limits of huge pages are those of its containers together, and requests
// those of its containers, or else its limits. The pod is changed.
func DefaultWhole(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	whole, none := Defaulted(pod), sums.PodResourcesOptions{}
	for name, q := range sums.AggregateContainerLimits(whole, none) {
		if _, asked := r.Requests[name]; pages(name) && !asked {
			r.Limits = withDefault(r.Limits, name, q)
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	for name, q := range sums.AggregateContainerRequests(whole, none) {
		if sums.IsSupportedPodLevelResource(name) && !pages(name) {
			r.Requests = withDefault(r.Requests, name, q)
		}
	}
	for name, q := range r.Limits {
		if sums.IsSupportedPodLevelResource(name) {
			r.Requests = withDefault(r.Requests, name, q)
		}
	}
}

func pages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func withDefault(list corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) corev1.ResourceList {
	if _, ok := list[name]; ok {
		return list
	}
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[name] = q.DeepCopy()
	return list
}
