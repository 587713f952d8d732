package capacity

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/priority"
)

// Deferral is a resize that waits for room.
type Deferral struct {
	Asks     *corev1.Pod // nil if none waits
	Since    time.Time
	Reserved bool // there is room by now, which is kept until the pod takes it
}

// Next is the deferral of what a pod asks for now, if it cannot have that. It waits since the
// one before, or since an earlier agent has told so.
func (d Deferral) Next(asks *corev1.Pod, now time.Time) Deferral {
	out := Deferral{Asks: asks, Since: d.Since}
	if !out.Since.IsZero() {
		return out
	}
	out.Since = now
	for _, c := range asks.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonDeferred && c.Status == corev1.ConditionTrue {
			out.Since = c.LastTransitionTime.Time
		}
	}
	return out
}

// With is the pod as it counts for others.
func (d Deferral) With(pod *corev1.Pod) *corev1.Pod {
	if !d.Reserved {
		return pod
	}
	out := *d.Asks
	out.Status = pod.Status
	return &out
}

// Compare is less than 0 if this one is tried first, as by a kubelet: by the pods' priority,
// their class of service, and how long they wait.
func (d Deferral) Compare(other Deferral) int {
	service := func(p *corev1.Pod) int {
		if podspec.QOS(p) == corev1.PodQOSGuaranteed {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(priority.Of(other.Asks), priority.Of(d.Asks)),
		cmp.Compare(service(d.Asks), service(other.Asks)),
		d.Since.Compare(other.Since),
	)
}
