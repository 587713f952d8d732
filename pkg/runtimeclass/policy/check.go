package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
)

// Reasons for which Check refuses pods.
const (
	// ReasonNotAllowed is a class that a policy does not allow.
	ReasonNotAllowed runtimeclass.Reason = "ClassNotAllowed"
	// ReasonIsolation is less isolation than a policy demands.
	ReasonIsolation runtimeclass.Reason = "IsolationTooLow"
	// ReasonFeature is a feature that a policy, or the pod itself, demands.
	ReasonFeature runtimeclass.Reason = "FeatureMissing"
	// ReasonQuota is that a namespace has as many pods of a class as it may have.
	ReasonQuota runtimeclass.Reason = "QuotaExceeded"
	// ReasonDefault is a class that a policy would give a pod, if it were enforced.
	ReasonDefault runtimeclass.Reason = "WouldGetClass"
	// ReasonPolicyUnusable is a policy of which nobody knows what it demands.
	ReasonPolicyUnusable runtimeclass.Reason = "PolicyUnusable"
	// ReasonUnsupported is that the handler cannot do what a field of the pod says.
	ReasonUnsupported runtimeclass.Reason = "HandlerUnsupported"
)

// Finding is one thing that is wrong with a pod.
type Finding struct {
	Policy string        // whose demand it is; empty where it is no policy's
	Mode   v1alpha1.Mode // what becomes of the pod
	Reason runtimeclass.Reason
	Class  string
	Field  string // of the pod
	Detail string
}

// String is a sentence for the pod's author.
func (f Finding) String() string { return f.Field + ": " + f.Detail }

// Verdict is what else there is to say of a pod that is admitted.
type Verdict struct {
	Findings []Finding
	Warnings []string          // for the author
	Audit    map[string]string // for the audit log: the name of a policy, and what it finds
}

// Findings is all that speaks against a pod with the class that it has, and what
// policies only warn of or note. The first by the order of their rules is the
// first.
func (a Admission) Findings(pod *corev1.Pod, ns *corev1.Namespace) []Finding {
	class := a.classOf(pod)
	var out []Finding
	if text, ok := pod.Annotations[AnnotationRequires]; ok {
		out = append(out, a.required(text, class)...)
	}
	policies := a.Policies.For(ns)
	out = append(out, a.judge(pod, class, policies)...)
	namespace := pod.Namespace
	if namespace == "" && ns != nil {
		namespace = ns.Name
	}
	for _, p := range policies {
		out = append(out, a.counted(p, namespace, class)...)
	}
	return out
}

func (a Admission) classOf(pod *corev1.Pod) *nodev1.RuntimeClass {
	name := runtimeclass.NameOf(pod)
	if name == "" || a.Classes == nil {
		return nil
	}
	return a.Classes.Get(name)
}

// required holds a class against what the pod itself demands of it.
func (a Admission) required(text string, class *nodev1.RuntimeClass) []Finding {
	f := Finding{Mode: v1alpha1.ModeEnforce, Class: nameOf(class), Field: requiresField}
	wanted, err := parseRequires(text)
	if err != nil {
		f.Reason, f.Detail = ReasonRequires, strings.TrimPrefix(err.Error(), requiresField+": ")
		return []Finding{f}
	}
	if why := a.Fleet.unmet(class, wanted); why != "" {
		f.Reason, f.Detail = ReasonFeature, describe(class)+" "+why+"; name a class that has it, or leave spec.runtimeClassName out and one is chosen"
		return []Finding{f}
	}
	return nil
}

// judge holds a class against what the pod's fields ask for and what policies
// demand of classes, in the order of policies.
func (a Admission) judge(pod *corev1.Pod, class *nodev1.RuntimeClass, policies Set) []Finding {
	out := a.unsupported(Needs(pod), class)
	for _, p := range policies {
		if name := p.Spec.DefaultClass; name != "" && p.Spec.Mode != v1alpha1.ModeEnforce && class == nil && !windows(pod) {
			out = append(out, Finding{
				Policy: p.Name, Mode: p.Spec.Mode, Reason: ReasonDefault, Class: name, Field: "spec.runtimeClassName",
				Detail: "RuntimeClassPolicy " + p.Name + " would give it RuntimeClass " + name + ", and does not, as it is not enforced",
			})
		}
		for _, f := range a.demands(p, class) {
			f.Policy, f.Mode, f.Class = p.Name, p.Spec.Mode, nameOf(class)
			f.Field = "spec.runtimeClassName"
			f.Detail = "RuntimeClassPolicy " + p.Name + " " + f.Detail
			out = append(out, f)
		}
	}
	return out
}

// unsupported is what a pod's fields ask for and the handler cannot do. What
// only some nodes can do is a warning: the pod may land on one of them.
func (a Admission) unsupported(needs []Need, class *nodev1.RuntimeClass) []Finding {
	if class == nil {
		return nil
	}
	var out []Finding
	for _, n := range needs {
		support, why := a.Fleet.Supports(class, n.Feature)
		f := Finding{Reason: ReasonUnsupported, Class: class.Name, Field: n.Field}
		switch support {
		case Unsupported:
			f.Mode = v1alpha1.ModeEnforce
			f.Detail = fmt.Sprintf("RuntimeClass %s has no %s: %s; leave the field out, or use another class", class.Name, n.Feature, why)
		case Mixed:
			f.Mode = v1alpha1.ModeWarn
			f.Detail = fmt.Sprintf("RuntimeClass %s has %s on some nodes only: %s; the pod fails elsewhere", class.Name, n.Feature, why)
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}

// demands is what a policy has against a class, nil being none.
func (a Admission) demands(p *Policy, class *nodev1.RuntimeClass) []Finding {
	if p.fault != "" {
		return []Finding{{Reason: ReasonPolicyUnusable, Detail: "cannot be used, and nobody knows what it demands; correct it or delete it: " + p.fault}}
	}
	var out []Finding
	s := &p.Spec
	if s.AllowedClasses != nil && !slices.Contains(s.AllowedClasses, nameOf(class)) {
		out = append(out, Finding{Reason: ReasonNotAllowed, Detail: "does not allow " + describe(class) + ", only " + allowed(s.AllowedClasses)})
	}
	if has := IsolationOf(class); !Isolates(has, s.MinimumIsolation) {
		out = append(out, Finding{Reason: ReasonIsolation, Detail: fmt.Sprintf("demands isolation %s, and %s has %s; name a class with label %s=%s", s.MinimumIsolation, describe(class), has, LabelIsolation, s.MinimumIsolation)})
	}
	for _, feature := range s.RequiredFeatures {
		if support, why := a.Fleet.Supports(class, feature); support != Supported {
			out = append(out, Finding{Reason: ReasonFeature, Detail: fmt.Sprintf("demands %s, which %s is not known to have on every node: %s", feature, describe(class), why)})
		}
	}
	return out
}

// counted is the quota of a policy for the class in one namespace.
func (a Admission) counted(p *Policy, namespace string, class *nodev1.RuntimeClass) []Finding {
	if a.Usage == nil {
		return nil
	}
	for _, q := range p.Spec.Quota {
		if q.ClassName != nameOf(class) {
			continue
		}
		if used := a.Usage(namespace, q.ClassName); used >= int(q.Pods) {
			return []Finding{{
				Policy: p.Name, Mode: p.Spec.Mode, Reason: ReasonQuota, Class: q.ClassName, Field: "spec.runtimeClassName",
				Detail: fmt.Sprintf("RuntimeClassPolicy %s allows %d pods with %s in namespace %s, and there are %d; wait until one ends, delete one, or use another class", p.Name, q.Pods, describe(class), namespace, used),
			}}
		}
	}
	return nil
}

func describe(class *nodev1.RuntimeClass) string {
	if class == nil {
		return "no RuntimeClass"
	}
	return "RuntimeClass " + class.Name
}

func allowed(names []string) string {
	var out []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if name == "" {
			name = "none"
		}
		out = append(out, name)
	}
	if len(out) > mostReasons {
		out = append(out[:mostReasons], fmt.Sprintf("%d more", len(names)-mostReasons))
	}
	return strings.Join(out, ", ")
}

// verdictOf is the answer to findings: those that are enforced make one
// rejection, and all others a verdict.
func verdictOf(findings []Finding) (Verdict, error) {
	v := Verdict{Findings: findings}
	var refused []Finding
	for _, f := range findings {
		switch f.Mode {
		case v1alpha1.ModeEnforce:
			refused = append(refused, f)
		case v1alpha1.ModeWarn:
			v.Warnings = append(v.Warnings, f.String())
		}
		if f.Policy != "" {
			v.note(f)
		}
	}
	if len(refused) == 0 {
		return v, nil
	}
	first := refused[0]
	detail := first.Detail
	for _, f := range refused[1:] {
		detail += "; also " + f.String()
	}
	return v, &runtimeclass.Rejection{Reason: first.Reason, Class: first.Class, Field: first.Field, Detail: detail}
}

func (v *Verdict) note(f Finding) {
	if v.Audit == nil {
		v.Audit = map[string]string{}
	}
	if has := v.Audit[f.Policy]; has != "" {
		v.Audit[f.Policy] = has + "; " + f.String()
		return
	}
	v.Audit[f.Policy] = f.String()
}
