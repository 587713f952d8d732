package nodes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// Read is what a pod of the installer says of its node, and how its last attempt
// ended, if it has ended one.
func Read(p *corev1.Pod) (Sign, *payload.InstallResult) {
	asked := strings.FieldsFunc(p.Annotations[names.AnnotationHandlers], func(r rune) bool { return r == ',' })
	work := names.PhaseOf(p.Labels[names.Work])
	if Ready(p) {
		return Sign{Known: work == names.Install, Handlers: asked, Done: true}, nil
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		for _, ended := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if ended == nil {
				continue
			}
			r, err := payload.DecodeResult([]byte(ended.Message))
			if err != nil {
				break // it was killed, or is another program: nothing is known
			}
			return signOf(r, work, asked), r
		}
	}
	return Sign{}, nil
}

// Ready says that a pod of the installer has done what it was made for, and stays.
func Ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// signOf is what a result means for the handlers that were asked for.
func signOf(r *payload.InstallResult, work names.PhaseOf, asked []string) Sign {
	switch {
	case work != names.Install, r.State == payload.Installed:
		return Sign{} // it was so then; readiness says whether it is so now
	case r.State == payload.Failed:
		return Sign{Known: true} // nothing is proven to work
	case r.Served == nil:
		return Sign{}
	}
	missing := slices.ContainsFunc(asked, func(h string) bool { return !slices.Contains(r.Served, h) })
	return Sign{Known: true, Handlers: r.Served, Done: len(asked) > 0 && !missing}
}
