package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
)

// Policy is a RuntimeClassPolicy made ready. It does not change.
type Policy struct {
	Name     string
	Spec     v1alpha1.RuntimeClassPolicySpec // a copy
	selector labels.Selector
	fault    string // why it cannot be used; it admits nothing then
}

// Unusable stands for a policy that Compile refuses. Nobody knows what it would
// have demanded, so that it demands what no pod can satisfy, in its mode, of the
// namespaces that it selects, or of all if that cannot be read either.
func Unusable(p *v1alpha1.RuntimeClassPolicy, why error) *Policy {
	out := &Policy{Name: p.Name, selector: labels.Everything(), fault: why.Error()}
	out.Spec.Mode = v1alpha1.ModeEnforce
	if p.Spec.Mode == v1alpha1.ModeWarn || p.Spec.Mode == v1alpha1.ModeAudit {
		out.Spec.Mode = p.Spec.Mode
	}
	if selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NamespaceSelector); err == nil {
		out.selector = selector
	}
	return out
}

// Compile makes a policy ready, or says what is wrong with it: what its CRD
// refuses, and what a CRD cannot say. An error is a field.ErrorList as one.
func Compile(p *v1alpha1.RuntimeClassPolicy) (*Policy, error) {
	spec := *p.Spec.DeepCopy()
	if spec.Mode == "" {
		spec.Mode = v1alpha1.ModeEnforce
	}
	faults := validate(&spec)
	selector, err := metav1.LabelSelectorAsSelector(&spec.NamespaceSelector)
	if err != nil {
		faults = append(faults, field.Invalid(field.NewPath("spec", "namespaceSelector"), metav1.FormatLabelSelector(&spec.NamespaceSelector), err.Error()))
	}
	if err := faults.ToAggregate(); err != nil {
		return nil, fmt.Errorf("RuntimeClassPolicy %s: %w", p.Name, err)
	}
	return &Policy{Name: p.Name, Spec: spec, selector: selector}, nil
}

func validate(s *v1alpha1.RuntimeClassPolicySpec) field.ErrorList {
	var faults field.ErrorList
	at := field.NewPath("spec")
	if s.DefaultClass == "" && s.AllowedClasses == nil && s.MinimumIsolation == "" && s.RequiredFeatures == nil && s.Quota == nil {
		faults = append(faults, field.Invalid(at, "{}", "demands nothing: give at least one of defaultClass, allowedClasses, minimumIsolation, requiredFeatures and quota"))
	}
	modes := []v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModeWarn, v1alpha1.ModeAudit}
	if !slices.Contains(modes, s.Mode) {
		faults = append(faults, field.NotSupported(at.Child("mode"), s.Mode, modes))
	}
	if s.MinimumIsolation != "" && !slices.Contains(levels, s.MinimumIsolation) {
		faults = append(faults, field.NotSupported(at.Child("minimumIsolation"), s.MinimumIsolation, levels))
	}
	if s.DefaultClass != "" {
		faults = append(faults, className(at.Child("defaultClass"), s.DefaultClass)...)
		if s.AllowedClasses != nil && !slices.Contains(s.AllowedClasses, s.DefaultClass) {
			faults = append(faults, field.Invalid(at.Child("defaultClass"), s.DefaultClass, "must be among allowedClasses, or the pods that get it are refused"))
		}
	}
	for i, name := range s.AllowedClasses {
		if slices.Contains(s.AllowedClasses[:i], name) {
			faults = append(faults, field.Duplicate(at.Child("allowedClasses").Index(i), name))
		}
		if name != "" {
			faults = append(faults, className(at.Child("allowedClasses").Index(i), name)...)
		}
	}
	if s.RequiredFeatures != nil && len(s.RequiredFeatures) == 0 {
		faults = append(faults, field.Invalid(at.Child("requiredFeatures"), "[]", "must have at least one feature, or be left out"))
	}
	for i, f := range s.RequiredFeatures {
		if slices.Contains(s.RequiredFeatures[:i], f) {
			faults = append(faults, field.Duplicate(at.Child("requiredFeatures").Index(i), f))
		}
		if !named(f) {
			faults = append(faults, field.Invalid(at.Child("requiredFeatures").Index(i), f, "must be a name such as userNamespaces or checkpoint"))
		}
	}
	return append(faults, validateQuota(s)...)
}

func validateQuota(s *v1alpha1.RuntimeClassPolicySpec) field.ErrorList {
	var faults field.ErrorList
	for i, q := range s.Quota {
		path := field.NewPath("spec", "quota").Index(i)
		if q.ClassName != "" {
			faults = append(faults, className(path.Child("className"), q.ClassName)...)
		}
		if q.Pods < 0 {
			faults = append(faults, field.Invalid(path.Child("pods"), q.Pods, "must be 0 or more"))
		}
		if s.AllowedClasses != nil && !slices.Contains(s.AllowedClasses, q.ClassName) {
			faults = append(faults, field.Invalid(path.Child("className"), q.ClassName, "is not among allowedClasses: nothing of it can run"))
		}
		if slices.ContainsFunc(s.Quota[:i], func(other v1alpha1.ClassQuota) bool { return other.ClassName == q.ClassName }) {
			faults = append(faults, field.Duplicate(path.Child("className"), q.ClassName))
		}
	}
	return faults
}

func className(at *field.Path, name string) field.ErrorList {
	var faults field.ErrorList
	for _, why := range validation.IsDNS1123Subdomain(name) {
		faults = append(faults, field.Invalid(at, name, why))
	}
	return faults
}

// Classes are the names of all classes that the policy names, each once, sorted.
func (p *Policy) Classes() []string {
	out := slices.Clone(p.Spec.AllowedClasses)
	out = append(out, p.Spec.DefaultClass)
	for _, q := range p.Spec.Quota {
		out = append(out, q.ClassName)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return name == "" })
}

// Set is policies, by their names.
type Set []*Policy

// NewSet sorts policies.
func NewSet(policies ...*Policy) Set {
	s := Set(slices.Clone(policies))
	slices.SortFunc(s, func(a, b *Policy) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// For is the policies that select a namespace. Nil is a namespace of which
// nothing is known: then it is those that select every one.
func (s Set) For(ns *corev1.Namespace) Set {
	var out Set
	for _, p := range s {
		if ns == nil && p.selector.Empty() || ns != nil && p.selector.Matches(namespaceLabels{ns}) {
			out = append(out, p)
		}
	}
	return out
}

// namespaceLabels is the labels of a namespace with its name among them, which
// an API server adds, and a manifest need not have.
type namespaceLabels struct{ *corev1.Namespace }

func (l namespaceLabels) Lookup(label string) (string, bool) {
	if label == corev1.LabelMetadataName && l.Name != "" {
		return l.Name, true
	}
	v, ok := l.Labels[label]
	return v, ok
}

func (l namespaceLabels) Has(label string) bool { _, ok := l.Lookup(label); return ok }

func (l namespaceLabels) Get(label string) string { v, _ := l.Lookup(label); return v }

// defaultClass is the class for pods that name none, and the policy that says so.
// What is not enforced changes nothing.
func (s Set) defaultClass() (class, by string) {
	for _, p := range s {
		if p.Spec.DefaultClass != "" && p.Spec.Mode == v1alpha1.ModeEnforce {
			return p.Spec.DefaultClass, "RuntimeClassPolicy " + p.Name
		}
	}
	return "", ""
}

// allow says whether no enforced policy forbids a class by its name.
func (s Set) allow(class string) bool {
	return !slices.ContainsFunc(s, func(p *Policy) bool {
		return p.Spec.Mode == v1alpha1.ModeEnforce && p.Spec.AllowedClasses != nil && !slices.Contains(p.Spec.AllowedClasses, class)
	})
}

// nameOf is the name of a class that may be none.
func nameOf(c *nodev1.RuntimeClass) string {
	if c == nil {
		return ""
	}
	return c.Name
}
