package eviction

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What the status and the events of an evicted pod say.
const (
	Reason             = "Evicted"
	annotationStarved  = "starved_resource"
	annotationOffender = "offending_containers"
	annotationUsage    = "offending_containers_usage"
)

// Eviction is a pod that has to end, and why.
type Eviction struct {
	Pod     *corev1.Pod
	Signal  Signal // for metrics: of the node, or a limit of the pod's own
	Message string
	Grace   time.Duration
	// Annotations of the event tell programs what the message tells people.
	Annotations map[string]string
}

// reclaiming says what is done about a signal that is short, and what somebody can do.
func reclaiming(s Signal, l Layout) string {
	first := ""
	if containers, images := reclaims(s, l); containers && images {
		first = "ended containers and unused images go first, and if that is not enough "
	} else if containers {
		first = "ended containers go first, and if that is not enough "
	} else if images {
		first = "unused images go first, and if that is not enough "
	}
	return fmt.Sprintf("Attempting to reclaim %s: %spods are evicted, until %s is above its threshold again. See what uses it, as other programs of the node may, and give pods requests and limits that fit", starved[s], first, s)
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
	return Eviction{Pod: p.Pod, Signal: t.Signal, Message: said.String(), Annotations: map[string]string{
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

// Limits of a pod's own, as metrics call them.
const (
	VolumeLimit    Signal = "emptydirfs.limit"
	PodLimit       Signal = "ephemeralpodfs.limit"
	ContainerLimit Signal = "ephemeralcontainerfs.limit"
)

// Exceeded says which of its own limits for disk a pod has gone past, or "".
func Exceeded(p Pod) (limit Signal, said string) {
	for _, v := range p.Pod.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		if p.Volumes[v.Name].Bytes > v.EmptyDir.SizeLimit.Value() {
			return VolumeLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	if limit, text, ok := diskLimit(p.Pod); ok && p.on(OneDisk, NodefsAvailable).Bytes > limit {
		return PodLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", text)
	}
	for _, c := range p.Containers {
		ct := container(p.Pod, c.Name)
		if ct == nil {
			continue
		}
		limit, ok := ct.Resources.Limits[corev1.ResourceEphemeralStorage]
		if ok && limit.Sign() > 0 && c.Layer.Bytes+c.Logs.Bytes > limit.Value() {
			return ContainerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return "", ""
}
