package check

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Bounds of a podFailurePolicy.
const (
	mostFailureRules = 20
	mostPatterns     = 20
)

// checkFailurePolicy checks which failures of its pods a Job counts.
func checkFailurePolicy(f *faults, path string, spec *batchv1.JobSpec) {
	if p := spec.PodReplacementPolicy; p != nil {
		oneOf(f, path+".podReplacementPolicy", *p, batchv1.TerminatingOrFailed, batchv1.Failed)
		if *p != batchv1.Failed && spec.PodFailurePolicy != nil {
			f.add(path+".podReplacementPolicy", "%q does not go with a podFailurePolicy, only Failed does", *p)
		}
	}
	if spec.PodFailurePolicy == nil {
		return
	}
	if p := spec.Template.Spec.RestartPolicy; p == corev1.RestartPolicyOnFailure {
		f.add(path+".template.spec.restartPolicy", "%q does not go with a podFailurePolicy, only Never does", p)
	}
	path += ".podFailurePolicy.rules"
	if n := len(spec.PodFailurePolicy.Rules); n > mostFailureRules {
		f.add(path, "has %d rules, and at most %d are allowed", n, mostFailureRules)
	}
	for i, r := range spec.PodFailurePolicy.Rules {
		at := fmt.Sprintf("%s[%d]", path, i)
		required(f, at+".action", string(r.Action))
		oneOf(f, at+".action", r.Action, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionCount)
		if (r.OnExitCodes == nil) == (len(r.OnPodConditions) == 0) {
			f.add(at, "must have one of onExitCodes and onPodConditions")
		}
		checkExitCodes(f, at+".onExitCodes", r.OnExitCodes, &spec.Template.Spec)
		checkPatterns(f, at+".onPodConditions", r.OnPodConditions)
	}
}

func checkExitCodes(f *faults, at string, r *batchv1.PodFailurePolicyOnExitCodesRequirement, spec *corev1.PodSpec) {
	if r == nil {
		return
	}
	required(f, at+".operator", string(r.Operator))
	oneOf(f, at+".operator", r.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	named := func(c corev1.Container) bool { return c.Name == *r.ContainerName }
	if r.ContainerName != nil && !slices.ContainsFunc(slices.Concat(spec.Containers, spec.InitContainers), named) {
		f.add(at+".containerName", "%q is not the name of a container of the template", *r.ContainerName)
	}
	if n := len(r.Values); n == 0 || n > mostCodes {
		f.add(at+".values", "has %d codes, and needs between 1 and %d", n, mostCodes)
	}
	for i, v := range r.Values {
		if v == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			f.add(fmt.Sprintf("%s.values[%d]", at, i), "0 is no failure")
		}
		if i > 0 && r.Values[i-1] >= v {
			f.add(fmt.Sprintf("%s.values[%d]", at, i), "%d is not more than the one before: codes are in order, each once", v)
		}
	}
}

func checkPatterns(f *faults, at string, list []batchv1.PodFailurePolicyOnPodConditionsPattern) {
	if n := len(list); n > mostPatterns {
		f.add(at, "has %d conditions, and at most %d are allowed", n, mostPatterns)
	}
	for i, r := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		f.all(at+".type", string(r.Type), validation.IsQualifiedName(string(r.Type)))
		oneOf(f, at+".status", r.Status, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)
	}
}
