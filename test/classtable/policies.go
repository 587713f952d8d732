package classtable

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/api/v1alpha1"
)

// PolicyCase is one RuntimeClassPolicy and the answer to it.
type PolicyCase struct {
	Name   string // unique
	Policy *v1alpha1.RuntimeClassPolicy
	// Faults are the fields that it is refused for, sorted, each once. None means
	// that it is accepted.
	Faults []string
	// Server are those that an API server names by its CRD alone, where they are
	// others: a schema cannot say everything.
	Server []string
	differ bool
}

// AtServer is what an API server without a webhook refuses it for.
func (c PolicyCase) AtServer() []string {
	if c.differ {
		return c.Server
	}
	return c.Faults
}

// Policies is the table of policies. The objects are the caller's.
func Policies() []PolicyCase {
	policy := func(change func(*v1alpha1.RuntimeClassPolicySpec)) *v1alpha1.RuntimeClassPolicy {
		p := &v1alpha1.RuntimeClassPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: "fairlead.run/v1alpha1", Kind: "RuntimeClassPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: "table"},
		}
		change(&p.Spec)
		return p
	}
	one := func(name string, change func(*v1alpha1.RuntimeClassPolicySpec), faults ...string) PolicyCase {
		return PolicyCase{Name: name, Policy: policy(change), Faults: faults}
	}
	at := func(c PolicyCase, server ...string) PolicyCase {
		c.Server, c.differ = server, true
		return c
	}
	type spec = v1alpha1.RuntimeClassPolicySpec
	quota := func(q ...v1alpha1.ClassQuota) func(*spec) { return func(s *spec) { s.Quota = q } }
	allowing := func(names ...string) func(*spec) { return func(s *spec) { s.AllowedClasses = names } }
	requiring := func(f ...v1alpha1.Feature) func(*spec) { return func(s *spec) { s.RequiredFeatures = f } }
	selecting := func(operator metav1.LabelSelectorOperator, values ...string) func(*spec) {
		return func(s *spec) {
			s.MinimumIsolation = v1alpha1.IsolationVM
			s.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "trust", Operator: operator, Values: values}}
		}
	}
	return []PolicyCase{
		one("everything", func(s *spec) {
			*s = spec{
				Mode: v1alpha1.ModeAudit, DefaultClass: "gvisor.v1", AllowedClasses: []string{"gvisor.v1", "", "kata"}, MinimumIsolation: v1alpha1.IsolationSandbox,
				RequiredFeatures: []v1alpha1.Feature{"userNamespaces", "user-namespaces2"}, Quota: []v1alpha1.ClassQuota{{ClassName: "kata", Pods: 3}, {}},
				NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"trust": "low"}},
			}
		}),
		one("a default alone", func(s *spec) { s.DefaultClass = "gvisor" }),
		one("a quota of nothing", quota(v1alpha1.ClassQuota{ClassName: "kata"})),
		one("nothing", func(*spec) {}, "spec"),
		one("mode", func(s *spec) { s.Mode, s.DefaultClass = "strict", "a" }, "spec.mode"),
		one("isolation", func(s *spec) { s.MinimumIsolation = "VM" }, "spec.minimumIsolation"),
		one("two mistakes", func(s *spec) { s.Mode, s.MinimumIsolation = "x", "y" }, "spec.minimumIsolation", "spec.mode"),
		one("default, capital letters", func(s *spec) { s.DefaultClass = "Gvisor" }, "spec.defaultClass"),
		one("default, not allowed", func(s *spec) { s.DefaultClass, s.AllowedClasses = "a", []string{"b"} }, "spec.defaultClass"),
		one("default, only none allowed", func(s *spec) { s.DefaultClass, s.AllowedClasses = "a", []string{""} }, "spec.defaultClass"),
		one("allowed, with a space", allowing("", "a b"), "spec.allowedClasses[1]"),
		one("allowed, ending in a dot", allowing("a."), "spec.allowedClasses[0]"),
		one("allowed, twice", allowing("a", "a"), "spec.allowedClasses[1]"),
		one("feature, with a space", requiring("a b"), "spec.requiredFeatures[0]"),
		one("feature, empty", requiring(""), "spec.requiredFeatures[0]"),
		one("feature, ending in a hyphen", requiring("fine", "a-"), "spec.requiredFeatures[1]"),
		one("feature, twice", requiring("a", "a"), "spec.requiredFeatures[1]"),
		one("quota, below nothing", quota(v1alpha1.ClassQuota{ClassName: "a", Pods: -1}), "spec.quota[0].pods"),
		one("quota, capital letters", quota(v1alpha1.ClassQuota{ClassName: "A"}), "spec.quota[0].className"),
		at(one("quota, twice", quota(v1alpha1.ClassQuota{ClassName: "a"}, v1alpha1.ClassQuota{ClassName: "a", Pods: 1}), "spec.quota[1].className"), "spec.quota[1]"),
		at(one("quota, not allowed", func(s *spec) {
			allowing("b")(s)
			quota(v1alpha1.ClassQuota{ClassName: "a"})(s)
		}, "spec.quota[0].className"), "spec.quota"),
		one("selector", selecting(metav1.LabelSelectorOpNotIn, "low", "none")),
		at(one("selector, unknown operator", selecting("Like", "low"), "spec.namespaceSelector")),
		at(one("selector, without values", selecting(metav1.LabelSelectorOpIn), "spec.namespaceSelector")),
		at(one("selector, a label that is none", func(s *spec) {
			s.DefaultClass, s.NamespaceSelector.MatchLabels = "a", map[string]string{"trust": "very low"}
		}, "spec.namespaceSelector")),
	}
}
