package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/plan"
)

// Remember adds the containers to what a runtime has of which it has nothing, and of which was
// told that they are done: those that have ended for good by their policy, and ephemeral ones
// that were started, as nobody starts them twice. After a reboot they would else run again.
func Remember(has map[string]*plan.Container, pod *corev1.Pod, told *corev1.PodStatus) {
	for i := range pod.Spec.EphemeralContainers {
		name := pod.Spec.EphemeralContainers[i].Name
		if s := statusOf(told.EphemeralContainerStatuses, name); s != nil && has[name] == nil && (s.State.Running != nil || s.State.Terminated != nil) {
			has[name] = done(s)
		}
	}
	for _, s := range Done(pod, told) {
		if has[s.Name] == nil {
			has[s.Name] = done(&s)
		}
	}
}

// Done are the containers that a status tells have ended, and that nothing starts again while
// their pod goes on.
func Done(pod *corev1.Pod, told *corev1.PodStatus) (out []corev1.ContainerStatus) {
	if told == nil || plan.RestartsAll(pod) {
		return nil // they were removed to run again
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if s := statusOf(told.ContainerStatuses, c.Name); s != nil && s.State.Terminated != nil && !plan.Restarts(pod, c, s.State.Terminated.ExitCode) {
			out = append(out, *s)
		}
	}
	return out
}

func done(s *corev1.ContainerStatus) *plan.Container {
	out := &plan.Container{State: plan.Exited, Attempt: uint32(max(s.RestartCount, 0)), ExitCode: unknownCode}
	if end := s.State.Terminated; end != nil {
		out.ExitCode, out.Finished = end.ExitCode, end.FinishedAt.Time
	}
	return out
}

// Began says that a status tells of a container that was started.
func Began(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}
