package runtimeclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate says what is wrong with a class that is to be created: what an API
// server of Kubernetes 1.36 refuses, and nothing else. Each fault names its
// field; the order is always the same.
//
// Two paths are more exact than the API server's, which calls overhead.podFixed
// "overhead.limits" and leaves the key of scheduling.nodeSelector out.
func Validate(c *nodev1.RuntimeClass) field.ErrorList {
	return validate(c, nil, field.NewPath("handler"))
}

// ValidateV1alpha1 is Validate for a class of node.k8s.io/v1alpha1, with the
// paths that its fields have there.
func ValidateV1alpha1(c *nodev1alpha1.RuntimeClass) field.ErrorList {
	spec := field.NewPath("spec")
	return validate(FromV1alpha1(c), spec, spec.Child("runtimeHandler"))
}

// ValidateUpdate says what is wrong with replacing a class. The handler cannot
// change: pods that run on it would be on another runtime than their class says.
func ValidateUpdate(updated, old *nodev1.RuntimeClass) field.ErrorList {
	faults := Validate(updated)
	faults = append(faults, apivalidation.ValidateObjectMetaUpdate(&updated.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))...)
	if updated.Handler != old.Handler {
		faults = append(faults, field.Invalid(field.NewPath("handler"), updated.Handler,
			"the handler of a class cannot change from "+old.Handler+"; make a class of another name for the new one"))
	}
	return ordered(faults)
}

// validate checks a class whose fields are below root.
func validate(c *nodev1.RuntimeClass, root, handler *field.Path) field.ErrorList {
	faults := apivalidation.ValidateObjectMeta(&c.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if c.Handler == "" {
		faults = append(faults, field.Required(handler, "the name of the runtime handler, as the node's container runtime knows it"))
	} else {
		faults = append(faults, invalid(handler, c.Handler, validation.IsDNS1123Label(c.Handler))...)
	}
	if c.Overhead != nil {
		faults = append(faults, validateOverhead(c.Overhead.PodFixed, root.Child("overhead"))...)
	}
	if c.Scheduling != nil {
		at := root.Child("scheduling")
		faults = append(faults, validateSelector(c.Scheduling.NodeSelector, at.Child("nodeSelector"))...)
		faults = append(faults, validateTolerations(c.Scheduling.Tolerations, at.Child("tolerations"))...)
	}
	return ordered(faults)
}

// ordered sorts the faults of maps, which come as they like, by their text and
// leaves out repetitions.
func ordered(faults field.ErrorList) field.ErrorList {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b *field.Error) int {
		if n := strings.Compare(a.Field, b.Field); n != 0 {
			return n
		}
		return strings.Compare(a.Error(), b.Error())
	})
	return slices.CompactFunc(faults, func(a, b *field.Error) bool { return a.Error() == b.Error() })
}

// invalid makes a fault of each problem that was found with a value.
func invalid(at *field.Path, value string, problems []string) field.ErrorList {
	var faults field.ErrorList
	for _, p := range problems {
		faults = append(faults, field.Invalid(at, value, p))
	}
	return faults
}

func validateSelector(selector map[string]string, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		faults = append(faults, invalid(at.Key(key), key, validation.IsQualifiedName(key))...)
		faults = append(faults, invalid(at.Key(key), selector[key], validation.IsValidLabelValue(selector[key]))...)
	}
	return faults
}

var (
	operators = []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}
	effects   = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
)

func validateTolerations(list []corev1.Toleration, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	type identity struct{ key, operator, value, effect string }
	seen := map[identity]bool{}
	for i, t := range list {
		faults = append(faults, validateToleration(t, at.Index(i))...)
		// The list is a map to who applies it by the server's side, and these
		// are its keys: seconds are not among them.
		id := identity{t.Key, string(t.Operator), t.Value, string(t.Effect)}
		if seen[id] {
			faults = append(faults, field.Duplicate(at.Index(i), describe(t)))
		}
		seen[id] = true
	}
	return faults
}

func validateToleration(t corev1.Toleration, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	operator := at.Child("operator")
	if t.Key != "" {
		faults = append(faults, invalid(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
	} else if t.Operator != corev1.TolerationOpExists {
		faults = append(faults, field.Invalid(operator, t.Operator, "without a key only Exists has a meaning: it tolerates every taint"))
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		faults = append(faults, invalid(operator, t.Value, validation.IsValidLabelValue(t.Value))...)
	case corev1.TolerationOpExists:
		if t.Value != "" {
			faults = append(faults, field.Invalid(operator, t.Value, "Exists takes no value; leave it out, or write Equal"))
		}
	default: // Lt and Gt are for pods, in clusters that have turned them on
		faults = append(faults, field.NotSupported(operator, t.Operator, operators))
	}
	if t.Effect != "" && !slices.Contains(effects, t.Effect) {
		faults = append(faults, field.NotSupported(at.Child("effect"), t.Effect, effects))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		faults = append(faults, field.Invalid(at.Child("effect"), t.Effect, "tolerationSeconds is about how long a pod may stay, and only NoExecute evicts"))
	}
	return faults
}

// describe writes a toleration as people do on a command line.
func describe(t corev1.Toleration) string {
	text := t.Key
	if t.Operator == "" || t.Operator == corev1.TolerationOpEqual {
		text += "=" + t.Value
	}
	if t.Effect != "" {
		text += ":" + string(t.Effect)
	}
	if t.TolerationSeconds != nil {
		text += fmt.Sprintf(" for %d s", *t.TolerationSeconds)
	}
	return text
}
