package priority

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"fairlead.run/internal/errdefs"
)

// HighestOwn is the highest priority that a class of somebody's own may have.
const HighestOwn = SystemCritical / 2

// System are the classes that every cluster has.
func System() map[string]int32 {
	return map[string]int32{clusterCriticalClass: SystemCritical, nodeCriticalClass: nodeCritical}
}

// Default is the class of pods that name none: of several the one with the lowest value. It
// is nil if there is none.
func Default(classes map[string]*schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
	var out *schedulingv1.PriorityClass
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if c := classes[name]; c.GlobalDefault && (out == nil || c.Value < out.Value) {
			out = c
		}
	}
	return out
}

// Resolve gives a pod the priority and the preemption policy of its class, or of the default
// one, as an API server does when a pod is made. A pod without a class keeps what it says
// itself. The error says which class there is not, or what in the pod does not fit its class.
func Resolve(spec *corev1.PodSpec, classes map[string]*schedulingv1.PriorityClass) error {
	class := classes[spec.PriorityClassName]
	value, system := System()[spec.PriorityClassName]
	switch {
	case class == nil && system:
		class = &schedulingv1.PriorityClass{Value: value}
		class.Name = spec.PriorityClassName
	case class == nil && spec.PriorityClassName != "":
		return fmt.Errorf("spec.priorityClassName: there is no PriorityClass %s; add it to the manifests, or leave the field out: %w", spec.PriorityClassName, errdefs.ErrNotFound)
	case class == nil:
		if class = Default(classes); class == nil {
			return nil
		}
	}
	if p := spec.Priority; p != nil && *p != class.Value {
		return fmt.Errorf("spec.priority: %d is not the value of its PriorityClass %s, %d; leave the field out: %w", *p, class.Name, class.Value, errdefs.ErrInvalidArgument)
	}
	policy := corev1.PreemptLowerPriority
	if class.PreemptionPolicy != nil {
		policy = *class.PreemptionPolicy
	}
	if p := spec.PreemptionPolicy; p != nil && *p != policy {
		return fmt.Errorf("spec.preemptionPolicy: %s is not that of its PriorityClass %s, %s; leave the field out: %w", *p, class.Name, policy, errdefs.ErrInvalidArgument)
	}
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = class.Name, &class.Value, &policy
	return nil
}

// Waits says that the pod ends no others to have its place.
func Waits(pod *corev1.Pod) bool {
	return pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
}

// ByImportance has the more important pods first.
func ByImportance(a, b *corev1.Pod) int { return cmp.Compare(Of(b), Of(a)) }
