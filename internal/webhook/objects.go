package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/webhook/review"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// classes answers for RuntimeClasses.
func (k *known) classes(_ context.Context, r *review.Request) (review.Answer, error) {
	if err := ofKind(r, "node.k8s.io", "v1", "RuntimeClass"); err != nil {
		return admitted, err
	}
	if r.Operation != review.Create && r.Operation != review.Update {
		return admitted, nil
	}
	class, old := &nodev1.RuntimeClass{}, &nodev1.RuntimeClass{}
	if err := review.Into(r.Object, "object", class); err != nil {
		return admitted, err
	}
	if r.Operation == review.Create {
		faults := append(runtimeclass.Validate(class), k.ownFaults(class)...)
		return k.classAnswer(class, faults), nil
	}
	if err := review.Into(r.OldObject, "oldObject", old); err != nil {
		return admitted, err
	}
	if class.DeletionTimestamp != nil {
		return admitted, nil // whoever takes finalizers off must not be held up
	}
	// What was wrong before may stay: it came when nobody looked, and to refuse
	// every change would not mend it.
	had := map[string]bool{}
	for _, fault := range append(runtimeclass.Validate(old), k.ownFaults(old)...) {
		had[fault.Error()] = true
	}
	faults := append(runtimeclass.ValidateUpdate(class, old), k.ownFaults(class)...)
	faults = slices.DeleteFunc(faults, func(f *field.Error) bool { return had[f.Error()] })
	return k.classAnswer(class, faults), nil
}

func (k *known) classAnswer(class *nodev1.RuntimeClass, faults field.ErrorList) review.Answer {
	if len(faults) > 0 {
		return review.Answer{Refused: review.Faults(faults)}
	}
	return review.Answer{Warnings: k.classWarnings(class)}
}

// ownFaults are those of Fairlead's label and annotations.
func (k *known) ownFaults(class *nodev1.RuntimeClass) field.ErrorList {
	faults := policy.ValidateClass(class)
	if class.Annotations[policy.AnnotationDefault] != "true" {
		return faults
	}
	if is := k.defaultClass(); is != "" && is != class.Name {
		at := field.NewPath("metadata", "annotations").Key(policy.AnnotationDefault)
		faults = append(faults, field.Forbidden(at, fmt.Sprintf("RuntimeClass %s is the default already; take the annotation off it first", is)))
	}
	return faults
}

func (k *known) classWarnings(class *nodev1.RuntimeClass) []string {
	// The fleet remembers what it is asked about, and this class may never be.
	nodes := k.cache.Nodes.List()
	if len(nodes) == 0 || slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return runtimeclass.Serves(n, class) }) {
		return nil
	}
	text := "no node has runtime handler " + class.Handler
	if class.Scheduling != nil && len(class.Scheduling.NodeSelector) > 0 {
		text += " and the labels that scheduling.nodeSelector wants"
	}
	return []string{text + ", so that pods of this class wait until one has"}
}

// policyObjects answers for RuntimeClassPolicies.
func (k *known) policyObjects(_ context.Context, r *review.Request) (review.Answer, error) {
	if err := ofKind(r, v1alpha1.SchemeGroupVersion.Group, v1alpha1.SchemeGroupVersion.Version, "RuntimeClassPolicy"); err != nil {
		return admitted, err
	}
	if r.Operation != review.Create && r.Operation != review.Update {
		return admitted, nil
	}
	object := &v1alpha1.RuntimeClassPolicy{}
	if err := review.Into(r.Object, "object", object); err != nil {
		return admitted, err
	}
	if object.DeletionTimestamp != nil {
		return admitted, nil
	}
	compiled, err := policy.Compile(object)
	if err != nil {
		return review.Answer{Refused: review.Faults(faultsOf(err))}, nil
	}
	var missing []string
	for _, name := range compiled.Classes() {
		if k.cache.Classes.Get(name) == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return admitted, nil
	}
	return review.Answer{Warnings: []string{"there is no RuntimeClass " + strings.Join(missing, ", ") + "; the policy holds all the same"}}, nil
}

// faultsOf is the faults that an error is made of.
func faultsOf(err error) field.ErrorList {
	var out field.ErrorList
	for err != nil {
		switch e := err.(type) {
		case *field.Error:
			return append(out, e)
		case utilerrors.Aggregate:
			for _, one := range e.Errors() {
				out = append(out, faultsOf(one)...)
			}
			return out
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		default:
			return append(out, field.InternalError(nil, err))
		}
	}
	return out
}
