package cluster

import (
	"strings"
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
	Verdict         Verdict // of the scheduler, as long as it has no node
	// The rest is kept with Options.PodDetails only.

	// Requests are what the scheduler counts for it, with its overhead.
	Requests corev1.ResourceList
	// Unscheduled is why it has no node; nil if it has one, or nobody has
	// tried yet.
	Unscheduled *corev1.PodCondition
	// Pending is what runtimeclass.Explain looks at; nil if it has a node.
	Pending *corev1.Pod
}

// Verdict is what the scheduler has said last of a pod without a node. One byte
// is all that is kept of it.
type Verdict uint8

// The verdicts.
const (
	Unasked Verdict = iota // none: nobody has tried yet, or the pod has a node
	Gated                  // it is not tried before somebody opens its gates
	Full                   // nodes would suit it, and lack room
	Unfit                  // something else keeps it from every node
)

// Failed says that a scheduler has tried, and found no node.
func (v Verdict) Failed() bool { return v == Full || v == Unfit }

func verdictOf(p *corev1.Pod) Verdict {
	c := refusal(p)
	switch {
	case c == nil:
		return Unasked
	case c.Reason == corev1.PodReasonSchedulingGated:
		return Gated
	case lacksRoom(c.Message):
		return Full
	}
	return Unfit
}

// refusal is why a pod has no node; nil if it has one, or nobody has tried yet.
func refusal(p *corev1.Pod) *corev1.PodCondition {
	if p.Spec.NodeName != "" {
		return nil
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

// lacksRoom says that a scheduler's sentence has nodes on which only room is
// missing: it looks at labels and taints first, and tells of each node what it has
// found first. What it tells of preemption is about other pods.
func lacksRoom(message string) bool {
	found, _, _ := strings.Cut(message, "preemption:")
	return strings.Contains(found, "Insufficient ") || strings.Contains(found, "Too many pods")
}

// Key is the namespace and the name, as the cache has them.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// interned makes one string of equal ones: a node's name is in each of its pods.
func interned(s string) string { return unique.Make(s).Value() }

func briefPod(p *corev1.Pod) *Pod {
	return &Pod{
		Namespace: interned(p.Namespace), Name: p.Name, UID: p.UID, Class: interned(runtimeclass.NameOf(p)),
		Node: interned(p.Spec.NodeName), Phase: corev1.PodPhase(interned(string(p.Status.Phase))), Created: p.CreationTimestamp.Time,
		Verdict: verdictOf(p),
	}
}

func detailedPod(p *corev1.Pod) *Pod {
	out := briefPod(p)
	out.Requests = resource.PodRequests(p, resource.PodResourcesOptions{})
	if p.Spec.NodeName != "" {
		return out
	}
	out.Unscheduled = refusal(p).DeepCopy()
	out.Pending = &corev1.Pod{ObjectMeta: bare(p.ObjectMeta), Spec: schedulingSpec(&p.Spec)}
	return out
}

// What strips is done before a list of pods is together, so that the whole of
// them is never in memory at once.

func stripToBrief(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp},
		Spec:       corev1.PodSpec{RuntimeClassName: p.Spec.RuntimeClassName, NodeName: p.Spec.NodeName},
		Status:     corev1.PodStatus{Phase: p.Status.Phase},
	}
	if c := refusal(p); c != nil {
		out.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}}
	}
	return out
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
