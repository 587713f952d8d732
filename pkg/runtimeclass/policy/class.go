package policy

import (
	"cmp"
	"slices"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
)

// AnnotationDefault makes a class, with "true", that of all pods in the cluster
// that name none and get none of a policy. One class has it, at most.
const AnnotationDefault = "fairlead.run/is-default-class"

// DefaultOf is the class that is the cluster's default, and the names of all
// that say they are. Of several it is the oldest, and of those of one age the
// first by name: a second one that slipped in changes nothing.
func DefaultOf(classes []*nodev1.RuntimeClass) (*nodev1.RuntimeClass, []string) {
	var found []*nodev1.RuntimeClass
	for _, c := range classes {
		if c.Annotations[AnnotationDefault] == "true" {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *nodev1.RuntimeClass) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var names []string
	for _, c := range found {
		names = append(names, c.Name)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found[0], names
}

// ValidateClass says what is wrong with the label and the annotations of a class
// that this package reads. The class itself is package runtimeclass's to judge.
func ValidateClass(c *nodev1.RuntimeClass) field.ErrorList {
	var faults field.ErrorList
	if level, ok := c.Labels[LabelIsolation]; ok && !slices.Contains(levels, v1alpha1.Isolation(level)) {
		faults = append(faults, field.NotSupported(field.NewPath("metadata", "labels").Key(LabelIsolation), v1alpha1.Isolation(level), levels))
	}
	annotations := field.NewPath("metadata", "annotations")
	if v, ok := c.Annotations[AnnotationDefault]; ok && v != "true" && v != "false" {
		faults = append(faults, field.NotSupported(annotations.Key(AnnotationDefault), v, []string{"true", "false"}))
	}
	lacks := map[string]v1alpha1.Feature{}
	for _, own := range ownWords {
		text, ok := c.Annotations[own.annotation]
		if !ok {
			continue
		}
		list, err := listed(text)
		if err != nil {
			faults = append(faults, field.Invalid(annotations.Key(own.annotation), text, err.Error()))
			continue
		}
		for k, name := range list {
			if _, both := lacks[k]; both {
				faults = append(faults, field.Invalid(annotations.Key(own.annotation), text, string(name)+" is in "+AnnotationLacks+", too: take it out of one of them"))
			}
		}
		if own.says == Unsupported {
			lacks = list
		}
	}
	return faults
}
