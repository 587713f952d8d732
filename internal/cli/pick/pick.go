// Package pick says which pod stands for an object that has several, where one is needed:
// for its logs, or to run a command in. The rules are kubectl's.
//
// It is pure: objects and pods are given to it.
package pick

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.run/internal/errdefs"
)

// Of are those of the pods that belong to an object, by its selector.
func Of(o metav1.Object, pods []corev1.Pod) ([]corev1.Pod, error) {
	s, err := selector(o)
	if err != nil {
		return nil, err
	}
	var out []corev1.Pod
	for _, p := range pods {
		if p.Namespace == o.GetNamespace() && s.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out, nil
}

func selector(o metav1.Object) (labels.Selector, error) {
	var s *metav1.LabelSelector
	switch o := o.(type) {
	case *appsv1.Deployment:
		s = o.Spec.Selector
	case *appsv1.ReplicaSet:
		s = o.Spec.Selector
	case *appsv1.DaemonSet:
		s = o.Spec.Selector
	case *appsv1.StatefulSet:
		s = o.Spec.Selector
	case *batchv1.Job:
		if s = o.Spec.Selector; s == nil { // an API server would give it one
			s = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.JobNameLabel: o.Name}}
		}
	default:
		return nil, fmt.Errorf("it has no pods of its own; deployments, replicasets, daemonsets, statefulsets and jobs have: %w", errdefs.ErrInvalidArgument)
	}
	return metav1.LabelSelectorAsSelector(s)
}

// Rule says which of two pods is the better one: it is negative if that is the first.
type Rule func(a, b *corev1.Pod) int

// Best is the first by a rule of pods, of which there is one at least.
func Best(pods []corev1.Pod, better Rule) *corev1.Pod {
	best := slices.MinFunc(pods, func(a, b corev1.Pod) int { return better(&a, &b) })
	return &best
}

// Logs is the rule for who reads logs: a pod that has ended is as good as one that runs, and
// one that was restarted may have more to say.
func Logs(a, b *corev1.Pod) int {
	phases := map[corev1.PodPhase]int{corev1.PodUnknown: 1, corev1.PodPending: 2}
	return cmp.Or(
		unplaced(a)-unplaced(b), phases[a.Status.Phase]-phases[b.Status.Phase], sooner(readySince(a), readySince(b)),
		restarts(b)-restarts(a), sidecarRestarts(b)-sidecarRestarts(a), sooner(&a.CreationTimestamp, &b.CreationTimestamp),
	)
}

// Running is the rule for who needs a pod that runs, and that goes on running.
func Running(a, b *corev1.Pod) int {
	phases := map[corev1.PodPhase]int{corev1.PodRunning: -2, corev1.PodUnknown: -1}
	readyA, readyB := readySince(a), readySince(b)
	return cmp.Or(
		unplaced(a)-unplaced(b), phases[a.Status.Phase]-phases[b.Status.Phase], number(readyA == nil)-number(readyB == nil),
		number(a.DeletionTimestamp != nil)-number(b.DeletionTimestamp != nil), sooner(b.DeletionTimestamp, a.DeletionTimestamp),
		sooner(readyA, readyB), restarts(a)-restarts(b), sidecarRestarts(a)-sidecarRestarts(b), sooner(&a.CreationTimestamp, &b.CreationTimestamp),
	)
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// unplaced is 1 for a pod that no node has yet.
func unplaced(p *corev1.Pod) int { return number(p.Spec.NodeName == "") }

// readySince is nil for a pod that is not ready.
func readySince(p *corev1.Pod) *metav1.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	return nil
}

// sooner takes the earlier time, then one that is not known, and last of all none.
func sooner(a, b *metav1.Time) int {
	rank := func(t *metav1.Time) int { return number(t == nil) + number(t.IsZero()) }
	if n := rank(a) - rank(b); n != 0 || rank(a) > 0 {
		return n
	}
	return a.Compare(b.Time)
}

// restarts are those of the container that was restarted most.
func restarts(p *corev1.Pod) (n int) {
	for _, c := range p.Status.ContainerStatuses {
		n = max(n, int(c.RestartCount))
	}
	return n
}

// sidecarRestarts are those of the sidecar that was.
func sidecarRestarts(p *corev1.Pod) (n int) {
	for _, c := range p.Status.InitContainerStatuses {
		if slices.ContainsFunc(p.Spec.InitContainers, func(ct corev1.Container) bool {
			return ct.Name == c.Name && ct.RestartPolicy != nil && *ct.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}) {
			n = max(n, int(c.RestartCount))
		}
	}
	return n
}
