package cluster

import (
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"fairlead.run/pkg/runtimeclass"
)

// Pod is what is kept of a pod that has not ended. A cluster has many: corev1.Pod
// takes more than a kilobyte even with nothing in it.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	Class           string // its RuntimeClass; empty for none
	Node            string // empty as long as it has none
	Phase           corev1.PodPhase
	Created         time.Time
	// The rest is kept with Options.PodDetails only.

	// Requests are what the scheduler counts for it, with its overhead.
	Requests corev1.ResourceList
	// Unscheduled is why it has no node; nil if it has one, or nobody has
	// tried yet.
	Unscheduled *corev1.PodCondition
	// Pending is what runtimeclass.Explain looks at; nil if it has a node.
	Pending *corev1.Pod
}

// Key is the namespace and the name, as the cache has them.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// interned makes one string of equal ones: a node's name is in each of its pods.
func interned(s string) string { return unique.Make(s).Value() }

func briefPod(p *corev1.Pod) *Pod {
	return &Pod{
		Namespace: interned(p.Namespace), Name: p.Name, UID: p.UID, Class: interned(runtimeclass.NameOf(p)),
		Node: interned(p.Spec.NodeName), Phase: corev1.PodPhase(interned(string(p.Status.Phase))), Created: p.CreationTimestamp.Time,
	}
}

func detailedPod(p *corev1.Pod) *Pod {
	out := briefPod(p)
	out.Requests = resource.PodRequests(p, resource.PodResourcesOptions{})
	if p.Spec.NodeName != "" {
		return out
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			out.Unscheduled = c.DeepCopy()
		}
	}
	out.Pending = &corev1.Pod{ObjectMeta: bare(p.ObjectMeta), Spec: schedulingSpec(&p.Spec)}
	return out
}

// What strips is done before a list of pods is together, so that the whole of
// them is never in memory at once.

func stripToBrief(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp},
		Spec:       corev1.PodSpec{RuntimeClassName: p.Spec.RuntimeClassName, NodeName: p.Spec.NodeName},
		Status:     corev1.PodStatus{Phase: p.Status.Phase},
	}
}

func stripToDetails(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp,
			Labels: p.Labels, Annotations: p.Annotations,
		},
		Spec:   schedulingSpec(&p.Spec),
		Status: corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions, Resources: p.Status.Resources},
	}
}

// schedulingSpec is what the place of a pod depends on.
func schedulingSpec(s *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		RuntimeClassName: s.RuntimeClassName, NodeName: s.NodeName, NodeSelector: s.NodeSelector, Affinity: s.Affinity,
		Tolerations: s.Tolerations, Overhead: s.Overhead, Resources: s.Resources,
		Containers: requesting(s.Containers), InitContainers: requesting(s.InitContainers),
		SchedulerName: s.SchedulerName, SchedulingGates: s.SchedulingGates, HostUsers: s.HostUsers,
	}
}

func requesting(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		out[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return out
}
