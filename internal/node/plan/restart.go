package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The kubelet's pauses: the first restart comes at once, then each waits twice as
// long as the one before. A container that ran for ForgetAfter starts over.
const (
	firstPause   = 10 * time.Second
	LongestPause = 5 * time.Minute
	ForgetAfter  = 10 * time.Minute
)

// Backoff is how long a container waits for its next attempt, after so many ends
// in a row, and at most so long; 0 is LongestPause.
func Backoff(crashes int, longest time.Duration) time.Duration {
	if longest = cmp.Or(longest, LongestPause); crashes <= 1 {
		return 0
	}
	pause := min(firstPause, longest)
	for range crashes - 2 {
		if pause *= 2; pause >= longest {
			return longest
		}
	}
	return pause
}

// after is what becomes of a container that ended.
type after int

const (
	stays      after = iota // as it ended
	again                   // is restarted
	everything              // all containers of the pod are, the init containers too
)

// ended says what becomes of a container by its own rules, its own policy, and
// the pod's. One that was ended for a probe has not done its work, whatever its exit code
// says, as that is 0 where a server ends orderly on SIGTERM.
func ended(pod *corev1.Pod, c *corev1.Container, init bool, got *Container) after {
	policy, code := policyOf(pod, c), got.ExitCode
	if Sidecar(c) || got.Probed && policy != corev1.RestartPolicyNever {
		return again
	}
	for _, r := range c.RestartPolicyRules {
		switch {
		case !matches(r.ExitCodes, code):
		case r.Action == corev1.ContainerRestartRuleActionRestartAllContainers:
			return everything
		case r.Action == corev1.ContainerRestartRuleActionRestart:
			return again
		}
	}
	switch {
	case init && code == 0, policy == corev1.RestartPolicyNever, policy == corev1.RestartPolicyOnFailure && code == 0:
		return stays
	}
	return again
}

func matches(when *corev1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if when == nil {
		return false
	}
	return slices.Contains(when.Values, code) == (when.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

// Policy is a pod's restart policy, with its default.
func Policy(pod *corev1.Pod) corev1.RestartPolicy {
	if pod.Spec.RestartPolicy == "" {
		return corev1.RestartPolicyAlways
	}
	return pod.Spec.RestartPolicy
}

// policyOf is a container's own policy, else its pod's.
func policyOf(pod *corev1.Pod, c *corev1.Container) corev1.RestartPolicy {
	if c.RestartPolicy != nil {
		return corev1.RestartPolicy(*c.RestartPolicy)
	}
	return Policy(pod)
}

// Sidecar says that a container of spec.initContainers runs beside the others as
// long as they do.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// Restarts says that a container which ended with this code runs again, by its own
// rules, its own policy, and the pod's; an init container that succeeded with the
// policy Always does so if its pod begins anew.
func Restarts(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	return ended(pod, c, false, &Container{ExitCode: code}) != stays
}

// RestartsAll says that the end of a container may restart all of the pod's.
func RestartsAll(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if slices.ContainsFunc(list[i].RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
				return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
			}) {
				return true
			}
		}
	}
	return false
}
