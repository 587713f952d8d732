package policy

import (
	"slices"

	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/api/v1alpha1"
)

// LabelIsolation is where a class says what lies between its pods and the kernel
// of the node: none, sandbox or vm.
const LabelIsolation = "fairlead.run/isolation"

// levels are from the least to the most.
var levels = []v1alpha1.Isolation{v1alpha1.IsolationNone, v1alpha1.IsolationSandbox, v1alpha1.IsolationVM}

// IsolationOf is what a class says it has. A class that says nothing, or nothing
// that can be read, has none, and so has no class.
func IsolationOf(c *nodev1.RuntimeClass) v1alpha1.Isolation {
	if c == nil {
		return v1alpha1.IsolationNone
	}
	if level := v1alpha1.Isolation(c.Labels[LabelIsolation]); slices.Contains(levels, level) {
		return level
	}
	return v1alpha1.IsolationNone
}

// Isolates says whether a level is at least as much as another. What is no level
// is the least.
func Isolates(has, least v1alpha1.Isolation) bool {
	return slices.Index(levels, has) >= max(slices.Index(levels, least), 0) || slices.Index(levels, least) <= 0
}
