package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass/policy"
)

var (
	classKind  = metav1.GroupVersionKind{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"}
	policyKind = metav1.GroupVersionKind{Group: "fairlead.run", Version: "v1alpha1", Kind: "RuntimeClassPolicy"}
)

func changed(c *nodev1.RuntimeClass, change func(*nodev1.RuntimeClass)) *nodev1.RuntimeClass {
	change(c)
	return c
}

func marked(key, value string) func(*nodev1.RuntimeClass) {
	return func(c *nodev1.RuntimeClass) { c.Annotations = map[string]string{key: value} }
}

func labelled(c *nodev1.RuntimeClass) { c.Labels = map[string]string{policy.LabelIsolation: "high"} }

func TestClasses(t *testing.T) {
	api := cluster(t)
	api.Put(classes, changed(class("default"), marked(policy.AnnotationDefault, "true")))
	api.Put(nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"sandbox/kind": "here"}},
		Status:     corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{{Name: "runsc"}}},
	})
	r := start(t, api, options())
	for name, test := range map[string]struct {
		class, old *nodev1.RuntimeClass
		refused    string
		warned     string
	}{
		"good":                    {class: class("here")},
		"nowhere":                 {class: class("there"), warned: "no node has runtime handler runsc"},
		"handler":                 {class: changed(class("here"), func(c *nodev1.RuntimeClass) { c.Handler = "Not_A_Label" }), refused: "handler"},
		"label":                   {class: changed(class("here"), labelled), refused: policy.LabelIsolation},
		"second default":          {class: changed(class("here"), marked(policy.AnnotationDefault, "true")), refused: "RuntimeClass default is the default already"},
		"the default stays":       {class: changed(class("default"), marked(policy.AnnotationDefault, "true")), old: class("default"), warned: "no node"},
		"handler changes":         {class: changed(class("here"), func(c *nodev1.RuntimeClass) { c.Handler = "kata" }), old: class("here"), refused: "cannot change"},
		"what was wrong before":   {class: changed(changed(class("here"), labelled), marked("a", "b")), old: changed(class("here"), labelled)},
		"what becomes wrong":      {class: changed(class("here"), labelled), old: class("here"), refused: policy.LabelIsolation},
		"wrong, but on its way":   {class: changed(changed(class("here"), labelled), func(c *nodev1.RuntimeClass) { now := metav1.Now(); c.DeletionTimestamp = &now }), old: class("here")},
		"annotation of a feature": {class: changed(class("here"), marked(policy.AnnotationLacks, "host network")), refused: policy.AnnotationLacks},
	} {
		t.Run(name, func(t *testing.T) {
			var old any
			if test.old != nil {
				test.old.ResourceVersion, test.class.ResourceVersion = "1", "1"
				old = test.old
			}
			got := r.ask("/validate-runtimeclasses", about(t, classKind, test.class, old))
			if got.Allowed != (test.refused == "") || test.refused != "" && !strings.Contains(got.Result.Message, test.refused) {
				t.Errorf("allowed %v: %+v", got.Allowed, got.Result)
			}
			if !got.Allowed && (got.Result.Code != http.StatusUnprocessableEntity || len(got.Result.Details.Causes) == 0) {
				t.Errorf("result: %+v", got.Result)
			}
			if text := strings.Join(got.Warnings, "\n"); (test.warned == "") != (text == "") || !strings.Contains(text, test.warned) {
				t.Errorf("warnings: %s", text)
			}
		})
	}
}

// A node that gets a handler counts, and one that is only heard of again does
// not make everything be worked out anew.
func TestClassesFollowNodes(t *testing.T) {
	api := cluster(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{{Name: "runc"}}}}
	api.Put(nodes, node)
	r := start(t, api, options())
	c := class("here")
	c.Scheduling = nil
	warned := func() bool {
		return len(r.ask("/validate-runtimeclasses", about(t, classKind, c, nil)).Warnings) > 0
	}
	if !warned() {
		t.Error("no warning, though no node has the handler")
	}
	node.Status.RuntimeHandlers = append(node.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: "runsc"})
	api.Put(nodes, node)
	eventually(t, "the handler", func() bool { return !warned() })
}

func TestPolicyObjects(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	r := start(t, api, options())
	ask := func(change func(*v1alpha1.RuntimeClassPolicySpec)) *admissionv1.AdmissionResponse {
		return r.ask("/validate-policies", about(t, policyKind, policyOf("p", change), nil))
	}
	if got := ask(func(s *v1alpha1.RuntimeClassPolicySpec) { s.DefaultClass = "gvisor" }); !got.Allowed || len(got.Warnings) != 0 {
		t.Errorf("good: %+v", got)
	}
	if got := ask(func(s *v1alpha1.RuntimeClassPolicySpec) { s.DefaultClass = "kata" }); !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "kata") {
		t.Errorf("missing class: %+v", got)
	}
	got := ask(func(s *v1alpha1.RuntimeClassPolicySpec) {
		s.MinimumIsolation = v1alpha1.IsolationVM
		s.NamespaceSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	})
	if got.Allowed || got.Result.Code != http.StatusUnprocessableEntity || got.Result.Details.Causes[0].Field != "spec.namespaceSelector" {
		t.Errorf("selector: %+v", got.Result)
	}
}
