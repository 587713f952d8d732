package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/priority"
)

// What is told of a pod that had to make room: in its status, and in the condition
// DisruptionTarget.
const (
	ReasonPreempted  = "Preempting"
	MessagePreempted = "Preempted in order to admit critical pod"
	TargetPreempted  = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Displace says which of the running pods have to end so that the node takes a
// critical pod which it has refused: the least important ones that free enough, and
// no more than that. Nothing is freed for a pod that is not critical, nor for one
// that something else than a resource is missing for; refused is the answer then.
func Displace(pod *corev1.Pod, refused error, running []*corev1.Pod) ([]*corev1.Pod, error) {
	if !priority.Critical(pod) {
		return nil, refused
	}
	return displace(pod, refused, running)
}

// Preempt is as Displace, where no scheduler finds pods their places: room is made for any
// pod that is more important than others, unless it says that it waits.
func Preempt(pod *corev1.Pod, refused error, running []*corev1.Pod) ([]*corev1.Pod, error) {
	if priority.Waits(pod) {
		return nil, refused
	}
	return displace(pod, refused, running)
}

func displace(pod *corev1.Pod, refused error, running []*corev1.Pod) ([]*corev1.Pod, error) {
	var r *Refusal
	if !errors.As(refused, &r) || len(r.Short) == 0 {
		return nil, refused
	}
	missing := map[corev1.ResourceName]int64{}
	for _, s := range r.Short {
		missing[s.Resource] = s.Missing()
	}
	var victims []victim
	for _, other := range running {
		v := victim{pod: other, frees: frees(other, missing)}
		if priority.Before(pod, other) && len(v.frees) > 0 {
			victims = append(victims, v)
		}
	}
	slices.SortStableFunc(victims, compare)
	chosen := enough(victims, missing)
	if chosen == nil {
		return nil, fmt.Errorf("%w; the pods that are less important do not free enough", refused)
	}
	var out []*corev1.Pod
	for _, v := range chosen {
		out = append(out, v.pod)
	}
	return out, nil
}

type victim struct {
	pod   *corev1.Pod
	frees map[corev1.ResourceName]int64
}

// frees is what of the missing resources a pod has.
func frees(pod *corev1.Pod, missing map[corev1.ResourceName]int64) map[corev1.ResourceName]int64 {
	requests, out := Requests(pod), map[corev1.ResourceName]int64{}
	for what := range missing {
		n := amount(requests, what)
		if what == corev1.ResourcePods {
			n = 1
		}
		if n > 0 {
			out[what] = n
		}
	}
	return out
}

// classes are in the order in which pods go.
var classes = []corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}

// compare has the least important pod first, and of equals the one that began last.
func compare(a, b victim) int {
	return cmp.Or(
		cmp.Compare(priority.Of(a.pod), priority.Of(b.pod)),
		cmp.Compare(slices.Index(classes, priority.Class(a.pod)), slices.Index(classes, priority.Class(b.pod))),
		b.pod.CreationTimestamp.Compare(a.pod.CreationTimestamp.Time),
		strings.Compare(string(a.pod.UID), string(b.pod.UID)),
	)
}

// enough takes victims from the first on until nothing is missing, and then spares
// those that are not needed, the most important one first. It is nil if all
// together are not enough.
func enough(victims []victim, missing map[corev1.ResourceName]int64) []victim {
	n := 0
	for n < len(victims) && !covers(victims[:n], missing) {
		n++
	}
	chosen := slices.Clone(victims[:n])
	if !covers(chosen, missing) {
		return nil
	}
	for i := len(chosen) - 1; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(chosen), i, i+1); covers(without, missing) {
			chosen = without
		}
	}
	return chosen
}

func covers(victims []victim, missing map[corev1.ResourceName]int64) bool {
	for what, n := range missing {
		for _, v := range victims {
			n -= v.frees[what]
		}
		if n > 0 {
			return false
		}
	}
	return true
}
