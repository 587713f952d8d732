package machine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
)

// notEnforced is the reason of events of objects that would have refused or changed
// something, if anybody acted on them.
const notEnforced = "NotEnforced"

// newGuards are such objects that there were not before.
func newGuards(before, now *manifest.Objects) (out []manifest.Shown) {
	for _, o := range now.Shown {
		known := func(old manifest.Shown) bool {
			return old.Kind == o.Kind && old.GetNamespace() == o.GetNamespace() && old.GetName() == o.GetName()
		}
		if o.Guards && (before == nil || !slices.ContainsFunc(before.Shown, known)) {
			out = append(out, o)
		}
	}
	return out
}

// referenceTo is an object that is shown as it is written, as events are about it.
func referenceTo(s manifest.Shown) corev1.ObjectReference {
	out := corev1.ObjectReference{Kind: s.Kind, Namespace: s.GetNamespace(), Name: s.GetName()}
	if o, ok := s.Object.(object); ok {
		out.APIVersion = o.GetObjectKind().GroupVersionKind().GroupVersion().String()
	}
	return out
}
