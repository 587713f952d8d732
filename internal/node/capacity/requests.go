package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Requests are what the pod asks for, with its overhead. What a resize has not
// finished counts with the larger of both sides.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(Defaulted(pod), resource.PodResourcesOptions{UseStatusResources: true})
}

// Defaulted is the pod as an API server would have it: a limit without a request
// is one. Pods of manifests did not pass an API server. The answer may be the pod
// itself, so it is not to be changed.
func Defaulted(pod *corev1.Pod) *corev1.Pod {
	if complete(pod) {
		return pod
	}
	out := pod.DeepCopy()
	for _, list := range [][]corev1.Container{out.Spec.Containers, out.Spec.InitContainers} {
		for i := range list {
			fill(&list[i].Resources)
		}
	}
	return out
}

func complete(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if lacks(list[i].Resources) {
				return false
			}
		}
	}
	return true
}

func lacks(r corev1.ResourceRequirements) bool {
	for what := range r.Limits {
		if _, ok := r.Requests[what]; !ok {
			return true
		}
	}
	return false
}

func fill(r *corev1.ResourceRequirements) {
	for what, q := range r.Limits {
		if _, ok := r.Requests[what]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[what] = q.DeepCopy()
	}
}
