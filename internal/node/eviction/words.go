package eviction

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the status and the events of an evicted pod say.
const (
	Reason             = "Evicted"
	reasonTermination  = "TerminationByKubelet" // of the condition DisruptionTarget
	annotationStarved  = "starved_resource"
	annotationOffender = "offending_containers"
	annotationUsage    = "offending_containers_usage"
)

// Eviction is a pod that has to end, and why.
type Eviction struct {
	Pod     *corev1.Pod
	Message string
	Grace   time.Duration
	// Annotations of the event tell programs what the message tells people.
	Annotations map[string]string
}

// Mark writes into the status of a pod that it was evicted.
func Mark(s *corev1.PodStatus, message string, now time.Time) {
	s.Phase, s.Reason, s.Message = corev1.PodFailed, Reason, message
	c := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: reasonTermination, Message: message, LastTransitionTime: metav1.NewTime(now),
	}
	for i := range s.Conditions {
		if s.Conditions[i].Type == c.Type {
			s.Conditions[i] = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}

func binary(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// low says why a pod is evicted because the node runs short.
func low(p Pod, t Threshold, o Observation) Eviction {
	what := starved[t.Signal]
	var said strings.Builder
	fmt.Fprintf(&said, "The node was low on resource: %s. ", what)
	fmt.Fprintf(&said, "Threshold quantity: %s, available: %s. ", t.Value.quantity(o.Capacity), available(t.Signal, o))
	var names, usages []string
	for _, c := range p.Containers {
		used, asked, known := compared(p.Pod, c, what)
		if !known || used <= asked.Value() {
			continue
		}
		fmt.Fprintf(&said, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, binary(used), asked.String(), what)
		names, usages = append(names, c.Name), append(usages, binary(used))
	}
	return Eviction{Pod: p.Pod, Message: said.String(), Annotations: map[string]string{
		annotationStarved: string(what), annotationOffender: strings.Join(names, ","), annotationUsage: strings.Join(usages, ","),
	}}
}

// available is in the format of the resource: processes and inodes are counted.
func available(s Signal, o Observation) string {
	if what := starved[s]; what == "pids" || what == "inodes" {
		return resource.NewQuantity(o.Available, resource.DecimalSI).String()
	}
	return resource.NewQuantity(o.Available/1024*1024, resource.BinarySI).String()
}

// compared is what a container uses, and what it has asked for.
func compared(pod *corev1.Pod, c Container, what corev1.ResourceName) (int64, resource.Quantity, bool) {
	ct := container(pod, c.Name)
	if ct == nil {
		return 0, resource.Quantity{}, false
	}
	asked := ct.Resources.Requests[what]
	switch what {
	case corev1.ResourceMemory:
		return c.Memory, asked, true
	case corev1.ResourceEphemeralStorage:
		return c.Layer.Bytes + c.Logs.Bytes, asked, true
	}
	return 0, asked, false
}

// Exceeded says by what a pod has gone past its own limits for disk, or "".
func Exceeded(p Pod) string {
	for _, v := range p.Pod.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		if p.Volumes[v.Name].Bytes > v.EmptyDir.SizeLimit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	if limit, text, ok := diskLimit(p.Pod); ok && p.on(OneDisk, NodefsAvailable).Bytes > limit {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", text)
	}
	for _, c := range p.Containers {
		ct := container(p.Pod, c.Name)
		if ct == nil {
			continue
		}
		limit, ok := ct.Resources.Limits[corev1.ResourceEphemeralStorage]
		if ok && limit.Sign() > 0 && c.Layer.Bytes+c.Logs.Bytes > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return ""
}
