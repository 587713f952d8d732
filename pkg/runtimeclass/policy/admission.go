package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/pkg/runtimeclass"
)

// Admission decides about pods by all that a cluster knows of its classes.
//
// A mutating webhook calls Create, and may call it again; a validating one calls
// Check for what has been created, Update for what changes, and Debug for
// ephemeral containers.
type Admission struct {
	Classes  runtimeclass.Classes
	Legacy   runtimeclass.Legacy
	Policies Set
	Default  string // the class of pods that name none and get none of a policy
	Fleet    *Fleet // nil if nothing is known of the nodes
	// Usage is how many pods of a namespace that have not ended have a class, or
	// none for "". The pod that is asked about is not among them. Nil counts none.
	Usage func(namespace, class string) int
	// Shallow is that of runtimeclass.Admission.
	Shallow bool
}

// Create gives a pod its class, if it names none, and what the class demands.
// The error is a *runtimeclass.Rejection. The pod's namespace may be nil: then
// it has the policies that hold everywhere.
func (a Admission) Create(pod *corev1.Pod, ns *corev1.Namespace) (runtimeclass.Decision, error) {
	return a.injection(ns).Create(pod)
}

// Check holds a pod that is created against its class, the policies of its
// namespace, and what the class's handler can do. The error is a
// *runtimeclass.Rejection that has all that is wrong.
func (a Admission) Check(pod *corev1.Pod, ns *corev1.Namespace) (Verdict, error) {
	if err := a.injection(ns).Validate(pod); err != nil {
		return Verdict{}, err
	}
	return verdictOf(a.Findings(pod, ns))
}

// Update checks a change of a pod that exists: class and overhead stay. Policies
// do not apply to what runs already.
func (a Admission) Update(updated, old *corev1.Pod) error {
	return a.injection(nil).Update(updated, old)
}

// Debug holds what a change of the subresource ephemeralcontainers asks for, and
// the pod did not, against what the class's handler can do. Policies are about
// classes, which stay.
func (a Admission) Debug(updated, old *corev1.Pod) (Verdict, error) {
	had := Needs(old)
	more := slices.DeleteFunc(Needs(updated), func(n Need) bool {
		return slices.ContainsFunc(had, func(h Need) bool { return h.Feature == n.Feature })
	})
	return verdictOf(a.unsupported(more, a.classOf(updated)))
}

func (a Admission) injection(ns *corev1.Namespace) runtimeclass.Admission {
	return runtimeclass.Admission{Classes: a.Classes, Legacy: a.Legacy, Chooser: chooser{a, a.Policies.For(ns)}, Shallow: a.Shallow}
}
