package workload

import (
	"cmp"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// judged is what the podFailurePolicy of a Job says of a pod that has failed: the first rule
// that it matches counts. Without one it counts towards the backoffLimit.
func (j *job) judged(p jobPod) (action batchv1.PodFailurePolicyAction, why string) {
	if j.Spec.PodFailurePolicy == nil {
		return batchv1.PodFailurePolicyActionCount, ""
	}
	for i, rule := range j.Spec.PodFailurePolicy.Rules {
		what := ""
		if rule.OnExitCodes != nil {
			what = exitMatched(p.Status, rule.OnExitCodes)
		} else {
			what = conditionMatched(p.Status, rule.OnPodConditions)
		}
		if what != "" {
			return rule.Action, fmt.Sprintf("its pod %s %s, which rule %d of its podFailurePolicy is for (%s)", p.Name, what, i, rule.Action)
		}
	}
	return batchv1.PodFailurePolicyActionCount, ""
}

// exitMatched tells of the first container whose exit code a rule is for.
func exitMatched(s corev1.PodStatus, rule *batchv1.PodFailurePolicyOnExitCodesRequirement) string {
	for _, c := range slices.Concat(s.ContainerStatuses, s.InitContainerStatuses) {
		t := c.State.Terminated
		if t == nil || t.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != c.Name {
			continue
		}
		if slices.Contains(rule.Values, t.ExitCode) == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return fmt.Sprintf("had container %s end with exit code %d", c.Name, t.ExitCode)
		}
	}
	return ""
}

// conditionMatched tells of the first condition that a rule is for.
func conditionMatched(s corev1.PodStatus, rule []batchv1.PodFailurePolicyOnPodConditionsPattern) string {
	for _, c := range s.Conditions {
		for _, r := range rule {
			if r.Type == c.Type && cmp.Or(r.Status, corev1.ConditionTrue) == c.Status {
				return fmt.Sprintf("has the condition %s=%s", c.Type, c.Status)
			}
		}
	}
	return ""
}
