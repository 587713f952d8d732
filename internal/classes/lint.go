package classes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/classes/manifests"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// Severity is how bad a finding is.
type Severity string

// An error is what an API server or a webhook refuses, or what cannot run. A
// warning is what works and should be changed.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// The rules that are not reasons of package runtimeclass or policy.
const (
	RuleUnreadable = "Unreadable"        // no YAML, or a field of the wrong type
	RuleField      = "FieldInvalid"      // a field that the kind does not have, has twice, or cannot read
	RuleClass      = "ClassInvalid"      // what an API server refuses of a class
	RuleVersion    = "DeprecatedVersion" // a RuntimeClass of an old API version
	RulePolicy     = "PolicyInvalid"     // what the CRD or the webhook refuses of a policy
	RuleReference  = "PolicyClassMissing"
	RuleDefaults   = "SecondDefault"  // two classes that are the cluster's default
	RuleNowhere    = "HandlerNowhere" // a class whose handler no node has
	RuleTwice      = "Twice"          // two objects of one name
	RuleAdvice     = "Advice"         // what admission would warn of
)

// Finding is one thing that is wrong, and where.
type Finding struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"`
	Object   string   `json:"object,omitempty"` // "Deployment default/web"
	Field    string   `json:"field,omitempty"`
	Message  string   `json:"message"`
}

// Lint looks at manifests as if they were applied to a cluster, which may be
// empty: then the manifests are all that there is.
func Lint(set *manifests.Set, cluster *Snapshot) []Finding {
	l := &linter{set: set, all: *cluster, told: map[*manifests.Object]int{}}
	l.all.AddManifests(set)
	l.admission = l.all.admission()
	l.faults()
	for _, o := range set.Objects {
		switch object := o.Object.(type) {
		case *nodev1.RuntimeClass:
			l.class(o, object, runtimeclass.Validate(object))
		case *nodev1beta1.RuntimeClass:
			l.deprecated(o)
			c := runtimeclass.FromV1beta1(object)
			l.class(o, c, runtimeclass.Validate(c))
		case *nodev1alpha1.RuntimeClass:
			l.deprecated(o)
			l.class(o, runtimeclass.FromV1alpha1(object), runtimeclass.ValidateV1alpha1(object))
		case *v1alpha1.RuntimeClassPolicy:
			l.policy(o, object)
		}
		if pod, at := manifests.Template(o.Object); pod != nil {
			l.pod(o, pod, at)
		}
	}
	l.defaults()
	return l.sorted()
}

// Faults is what of manifests could not be read, or not be taken in.
func Faults(set *manifests.Set) []Finding {
	l := &linter{set: set, told: map[*manifests.Object]int{}}
	l.faults()
	return l.sorted()
}

func (l *linter) sorted() []Finding {
	slices.SortStableFunc(l.out, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return l.out
}

type linter struct {
	set       *manifests.Set
	all       Snapshot // the cluster, with the manifests in it
	admission policy.Admission
	told      map[*manifests.Object]int // how many findings
	out       []Finding
}

// mostFindings bounds what is said of one object: there can be one for each of its
// words.
const mostFindings = 100

// add tells of an object's field.
func (l *linter) add(o *manifests.Object, f Finding) {
	if l.told[o]++; l.told[o] > mostFindings {
		return
	}
	if l.told[o] == mostFindings {
		f.Field, f.Message = "", "has more of that; mend what is told first"
	}
	f.File, f.Line, f.Object = o.File, o.LineOf(f.Field), o.String()
	l.out = append(l.out, f)
}

// faults are what the reader could not take, and what has a name that is taken.
func (l *linter) faults() {
	_, doubles := distinct(l.set)
	for _, o := range l.set.Objects {
		if first := doubles[o]; first != nil {
			l.add(o, Finding{Severity: Error, Rule: RuleTwice, Field: "metadata.name", Message: fmt.Sprintf("is the name of another one in %s:%d; one of the two replaces the other", first.File, first.Line)})
		}
	}
	for _, f := range l.set.Faults {
		rule := RuleUnreadable
		if f.Field != "" {
			rule = RuleField
		}
		l.out = append(l.out, Finding{File: f.File, Line: f.Line, Severity: Error, Rule: rule, Object: f.Object, Field: f.Field, Message: f.Message})
	}
}

func (l *linter) class(o *manifests.Object, c *nodev1.RuntimeClass, faults field.ErrorList) {
	for _, f := range append(faults, policy.ValidateClass(c)...) {
		l.add(o, Finding{Severity: Error, Rule: RuleClass, Field: f.Field, Message: f.ErrorBody()})
	}
	if len(faults) == 0 && len(l.all.Nodes) > 0 && l.admission.Fleet.Nodes(c) == 0 {
		l.add(o, Finding{Severity: Warning, Rule: RuleNowhere, Field: "handler", Message: fmt.Sprintf("none of the %d nodes has handler %s and the labels that the class selects, so its pods stay pending", len(l.all.Nodes), c.Handler)})
	}
}

func (l *linter) deprecated(o *manifests.Object) {
	message := "is gone since Kubernetes 1.25; write node.k8s.io/v1, which has the same fields"
	if o.Version == "node.k8s.io/v1alpha1" {
		message = "is gone since Kubernetes 1.22; write node.k8s.io/v1, with spec.runtimeHandler as handler, and spec.overhead and spec.scheduling without spec"
	}
	l.add(o, Finding{Severity: Error, Rule: RuleVersion, Field: "apiVersion", Message: o.Version + " " + message})
}

func (l *linter) policy(o *manifests.Object, p *v1alpha1.RuntimeClassPolicy) {
	compiled, err := policy.Compile(p)
	var all utilerrors.Aggregate
	if errors.As(err, &all) {
		for _, fault := range all.Errors() {
			var f *field.Error
			if errors.As(fault, &f) {
				l.add(o, Finding{Severity: Error, Rule: RulePolicy, Field: f.Field, Message: f.ErrorBody()})
			}
		}
	}
	if compiled == nil {
		return
	}
	for _, name := range compiled.Classes() {
		if _, err := runtimeclass.Find(l.admission.Classes, name); err != nil {
			l.add(o, Finding{Severity: Warning, Rule: RuleReference, Field: fieldOf(p, name), Message: err.Error()})
		}
	}
}

// fieldOf is where a policy names a class first.
func fieldOf(p *v1alpha1.RuntimeClassPolicy, class string) string {
	if p.Spec.DefaultClass == class {
		return "spec.defaultClass"
	}
	if i := slices.Index(p.Spec.AllowedClasses, class); i >= 0 {
		return fmt.Sprintf("spec.allowedClasses[%d]", i)
	}
	i := slices.IndexFunc(p.Spec.Quota, func(q v1alpha1.ClassQuota) bool { return q.ClassName == class })
	return fmt.Sprintf("spec.quota[%d].className", i)
}

// pod holds a pod, or what a template makes, against all that admission does.
func (l *linter) pod(o *manifests.Object, pod *corev1.Pod, at string) {
	ns := l.all.namespace(pod.Namespace)
	d, err := l.admission.Create(pod, ns)
	for _, w := range d.Warnings {
		f, message, _ := strings.Cut(w, ": ")
		l.add(o, Finding{Severity: Warning, Rule: RuleAdvice, Field: at + f, Message: message})
	}
	if err != nil {
		l.rejected(o, at, err)
		return
	}
	for _, f := range l.admission.Findings(d.Pod, ns) {
		severity := Warning
		if f.Mode == v1alpha1.ModeEnforce {
			severity = Error
		}
		l.add(o, Finding{Severity: severity, Rule: string(f.Reason), Field: at + f.Field, Message: f.Detail})
	}
	if d.Class == nil || len(l.all.Nodes) == 0 {
		return
	}
	if o.Kind == "DaemonSet" {
		d.Pod.Spec.Tolerations = append(d.Pod.Spec.Tolerations, everywhere...)
	}
	e, err := runtimeclass.Explain(runtimeclass.Query{Class: d.Class, Pod: d.Pod, Nodes: l.all.Nodes})
	if err == nil && e.Matching == 0 {
		l.add(o, Finding{Severity: Warning, Rule: RuleNowhere, Field: at + "spec.runtimeClassName", Message: "it finds no node: " + e.Sentence})
	}
}

// everywhere is what the pods of DaemonSets tolerate, whatever their template says.
var everywhere = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

func (l *linter) rejected(o *manifests.Object, at string, err error) {
	var r *runtimeclass.Rejection
	if !errors.As(err, &r) {
		l.add(o, Finding{Severity: Error, Rule: RuleUnreadable, Field: "", Message: err.Error()})
		return
	}
	severity := Error
	if r.Reason == runtimeclass.ReasonMissing && (len(l.all.Classes) == 0 || l.all.lacks(Known)) {
		severity = Warning // whoever has no classes at hand cannot say what is missing
	}
	l.add(o, Finding{Severity: severity, Rule: string(r.Reason), Field: at + r.Field, Message: r.Detail})
}

// defaults finds a second class that is the cluster's default.
func (l *linter) defaults() {
	standard, names := policy.DefaultOf(l.all.Classes)
	if len(names) < 2 {
		return
	}
	for _, o := range l.set.Objects {
		if o.Kind == "RuntimeClass" && o.GetName() != standard.Name && slices.Contains(names, o.GetName()) {
			l.add(o, Finding{Severity: Error, Rule: RuleDefaults, Field: "metadata.annotations[" + policy.AnnotationDefault + "]", Message: fmt.Sprintf("RuntimeClass %s is the default already; take the annotation from one of them", standard.Name)})
		}
	}
}
