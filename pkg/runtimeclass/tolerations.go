package runtimeclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mergeTolerations unites a pod's tolerations with its class's, the pod's first.
// One that another makes superfluous is left out, wherever the two come from, as
// Kubernetes' own admission has it. The result shares nothing with either.
func mergeTolerations(pod, class []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(pod, class)
	var merged []corev1.Toleration
	for i, t := range all {
		covered := func(by corev1.Toleration) bool { return covers(by, t) }
		wider := func(by corev1.Toleration) bool { return covers(by, t) && !equal(by, t) }
		if slices.ContainsFunc(merged, covered) || slices.ContainsFunc(all[i+1:], wider) {
			continue
		}
		merged = append(merged, *t.DeepCopy())
	}
	return merged
}

// covers says whether wide tolerates all that narrow does.
//
// It says no where it could say yes: an empty operator of narrow's is not taken
// for Equal. That changes nothing for the pod, and is what Kubernetes does.
func covers(wide, narrow corev1.Toleration) bool {
	exists := wide.Operator == corev1.TolerationOpExists
	switch {
	case equal(wide, narrow):
		return true
	case wide.Key != narrow.Key && (wide.Key != "" || !exists):
		return false
	case wide.Effect != narrow.Effect && wide.Effect != "":
		return false
	case wide.Effect == corev1.TaintEffectNoExecute && !lasts(wide.TolerationSeconds, narrow.TolerationSeconds):
		return false
	case wide.Operator == corev1.TolerationOpEqual, wide.Operator == "":
		return narrow.Operator == corev1.TolerationOpEqual && narrow.Value == wide.Value
	}
	return exists
}

// lasts says whether long is at least as many seconds as short. Nil is for ever.
func lasts(long, short *int64) bool {
	return long == nil || short != nil && *short <= *long
}

func equal(a, b corev1.Toleration) bool {
	return a.MatchToleration(&b) && lasts(a.TolerationSeconds, b.TolerationSeconds) && lasts(b.TolerationSeconds, a.TolerationSeconds)
}

// without is the tolerations of list that are not among others.
func without(list, others []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range list {
		if !slices.ContainsFunc(others, func(o corev1.Toleration) bool { return equal(o, t) }) {
			out = append(out, *t.DeepCopy())
		}
	}
	return out
}
