package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Allocation is what a node has let a pod in with, or has given it since: the resources
// of its containers, by name, and its own. It outlives the agent.
type Allocation struct {
	Containers map[string]corev1.ResourceRequirements `json:"containers,omitempty"`
	Pod        *corev1.ResourceRequirements           `json:"pod,omitempty"`
}

// AllocationOf is what a pod asks for.
func AllocationOf(pod *corev1.Pod) Allocation {
	out := Allocation{Containers: map[string]corev1.ResourceRequirements{}, Pod: pod.Spec.Resources.DeepCopy()}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if r := &list[i].Resources; len(r.Limits)+len(r.Requests)+len(r.Claims) > 0 {
				out.Containers[list[i].Name] = *r.DeepCopy()
			}
		}
	}
	return out
}

// Equal says that there is no difference.
func (a Allocation) Equal(b Allocation) bool { return equality.Semantic.DeepEqual(a, b) }

// Of is the pod with it, in the place of what the pod asks for. It may be the pod itself,
// so that it is not to be changed.
func (a Allocation) Of(pod *corev1.Pod) *corev1.Pod {
	if a.Equal(AllocationOf(pod)) {
		return pod
	}
	out := *pod
	out.Spec.Resources = a.Pod
	for _, list := range []*[]corev1.Container{&out.Spec.InitContainers, &out.Spec.Containers} {
		*list = append([]corev1.Container(nil), *list...)
		for i := range *list {
			(*list)[i].Resources = a.Containers[(*list)[i].Name]
		}
	}
	return &out
}

// Larger has the larger of both sides for each resource, and no limit where one side has
// none: what is held to it may change from one side to the other.
func (a Allocation) Larger(b Allocation) Allocation {
	out := Allocation{Containers: map[string]corev1.ResourceRequirements{}}
	for name, r := range a.Containers {
		out.Containers[name] = larger(r, b.Containers[name])
	}
	for name, r := range b.Containers {
		if _, both := a.Containers[name]; !both {
			out.Containers[name] = larger(r, corev1.ResourceRequirements{})
		}
	}
	if a.Pod != nil && b.Pod != nil {
		both := larger(*a.Pod, *b.Pod)
		out.Pod = &both
	}
	return out
}

func larger(a, b corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}, Claims: a.Claims}
	for what, q := range a.Requests {
		out.Requests[what] = most(q, b.Requests[what])
	}
	for what, q := range b.Requests {
		out.Requests[what] = most(q, a.Requests[what])
	}
	for what, q := range a.Limits {
		if other, both := b.Limits[what]; both {
			out.Limits[what] = most(q, other)
		}
	}
	return out
}

func most(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return b.DeepCopy()
	}
	return a.DeepCopy()
}
