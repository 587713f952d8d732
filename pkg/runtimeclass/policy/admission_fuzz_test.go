package policy_test

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// tooMuch are quantities that take minutes to read, which nobody hands over.
var tooMuch = regexp.MustCompile(`[eE][-+]?[0-9]{4}|[0-9.]{65}`)

func reads(text []byte, into any) bool {
	return !tooMuch.Match(text) && kjson.UnmarshalCaseSensitivePreserveInts(text, into) == nil
}

// Whatever pod, class and policy are: the class is the one that the first rule in
// order gives, the second time changes nothing, and what was made of the pod passes
// the checks of class and overhead that the same rules make afterwards.
func FuzzCreate(f *testing.F) {
	for _, s := range [][4]string{
		{`{}`, `{}`, `{"defaultClass":"c"}`, ``},
		{`{"spec":{"runtimeClassName":"c","overhead":{"cpu":"1"}}}`, `{"overhead":{"podFixed":{"cpu":"1000m"}}}`, `{"defaultClass":"gvisor","mode":"warn"}`, `c`},
		{`{"metadata":{"annotations":{"fairlead.run/requires":"isolation=vm"}}}`, `{"metadata":{"labels":{"fairlead.run/isolation":"vm"}},"scheduling":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"k"}]}}`, `{"minimumIsolation":"vm"}`, `gvisor`},
		{`{"spec":{"runtimeClassName":"","os":{"name":"windows"}}}`, `{}`, `{"defaultClass":"c"}`, `c`},
		{`{"metadata":{"annotations":{"fairlead.run/runtimeclass-injected":"{\"class\":\"c\",\"chosenBy\":\"x\"}"}},"spec":{"nodeSelector":{"a":"x"},"hostNetwork":true}}`, `{"scheduling":{"nodeSelector":{"a":"b"}}}`, `{"namespaceSelector":{"matchLabels":{"tenant":"no"}},"defaultClass":"missing"}`, `c`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), []byte(s[2]), s[3])
	}
	ns := namespace("team", "tenant", "yes")
	f.Fuzz(func(t *testing.T, podText, classText, rules []byte, fallback string) {
		p, c, spec := pod(), &nodev1.RuntimeClass{}, v1alpha1.RuntimeClassPolicySpec{}
		if !reads(podText, p) || !reads(classText, c) || !reads(rules, &spec) {
			return
		}
		p.Namespace, c.Name = ns.Name, "c"
		one, err := policy.Compile(&v1alpha1.RuntimeClassPolicy{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: spec})
		if err != nil {
			return
		}
		a := policy.Admission{
			Classes: runtimeclass.NewMap(c, class("gvisor", isolating("sandbox"), costing("64Mi"))), Policies: policy.NewSet(one), Default: fallback,
			Fleet: policy.NewFleet([]*corev1.Node{node("n", handler("gvisor"), handler(c.Handler))}),
		}
		before := p.DeepCopy()
		d, err := a.Create(p, ns)
		a.Shallow = true
		shallow, sameErr := a.Create(p, ns)
		same(t, "the pod that was asked about", before, p)
		same(t, "a deep and a shallow copy", d.Pod, shallow.Pod)
		if fmt.Sprint(err) != fmt.Sprint(sameErr) {
			t.Fatalf("deep: %v; shallow: %v", err, sameErr)
		}
		if err != nil {
			var r *runtimeclass.Rejection
			if !errors.As(err, &r) || r.Detail == "" || r.Field == "" || r.Reason == "" {
				t.Fatalf("rejected without a reason: %v", err)
			}
			return
		}
		if want, known := expected(a, p, ns); known && runtimeclass.NameOf(d.Pod) != want {
			t.Fatalf("class %q, and not %q", runtimeclass.NameOf(d.Pod), want)
		}
		if in, err := runtimeclass.InjectedOf(d.Pod); err != nil || in != nil && in.Class != runtimeclass.NameOf(d.Pod) {
			t.Fatalf("%q is noted as %+v: %v", runtimeclass.NameOf(d.Pod), in, err)
		}
		again, err := a.Create(d.Pod, ns)
		if err != nil {
			t.Fatalf("again: %v", err)
		}
		same(t, "first and again", d.Pod, again.Pod)
		var r *runtimeclass.Rejection
		if _, err := a.Check(d.Pod, ns); errors.As(err, &r) && (r.Reason == runtimeclass.ReasonMissing || r.Reason == runtimeclass.ReasonOverhead) {
			t.Fatalf("what was made of it is refused: %v", err)
		}
	})
}

// expected is the class that a pod should get. What fits to an annotation is not known
// here.
func expected(a policy.Admission, p *corev1.Pod, ns *corev1.Namespace) (class string, known bool) {
	if name := runtimeclass.NameOf(p); name != "" {
		return name, true
	}
	if _, ok := p.Annotations[policy.AnnotationRequires]; ok {
		return "", false
	}
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return "", true
	}
	for _, rule := range a.Policies.For(ns) {
		if rule.Spec.Mode == v1alpha1.ModeEnforce && rule.Spec.DefaultClass != "" {
			return rule.Spec.DefaultClass, true
		}
	}
	return a.Default, true
}

func same(t *testing.T, what string, a, b *corev1.Pod) {
	t.Helper()
	if !equality.Semantic.DeepEqual(a, b) {
		t.Fatalf("%s differ:\n%s", what, cmp.Diff(a, b))
	}
}
