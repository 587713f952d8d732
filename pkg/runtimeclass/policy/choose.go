package policy

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/pkg/runtimeclass"
)

// chooser gives classes to pods of one namespace that name none.
type chooser struct {
	Admission
	policies Set
}

// Choose asks the pod's own requirements first, then policies, then the
// cluster's default.
func (c chooser) Choose(pod *corev1.Pod) (runtimeclass.Choice, error) {
	if text, ok := pod.Annotations[AnnotationRequires]; ok {
		wanted, err := parseRequires(text)
		if err != nil {
			return runtimeclass.Choice{}, err
		}
		return c.fit(pod, wanted)
	}
	if windows(pod) {
		return runtimeclass.Choice{}, nil // no default is for both systems
	}
	if class, by := c.policies.defaultClass(); class != "" {
		return runtimeclass.Choice{Class: class, By: by}, nil
	}
	if c.Default != "" {
		return runtimeclass.Choice{Class: c.Default, By: "annotation " + AnnotationDefault + " of RuntimeClass " + c.Default}, nil
	}
	return runtimeclass.Choice{}, nil
}

func windows(pod *corev1.Pod) bool {
	return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows
}
