package policy_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

type classOption func(*nodev1.RuntimeClass)

// class has a handler of its own name.
func class(name string, options ...classOption) *nodev1.RuntimeClass {
	c := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name}
	for _, o := range options {
		o(c)
	}
	return c
}

func isolating(level string) classOption {
	return func(c *nodev1.RuntimeClass) { c.Labels = map[string]string{policy.LabelIsolation: level} }
}

func saying(annotation, value string) classOption {
	return func(c *nodev1.RuntimeClass) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, annotation, value) }
}

func costing(memory string) classOption {
	return func(c *nodev1.RuntimeClass) {
		c.Overhead = &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
	}
}

func handledBy(handler string) classOption {
	return func(c *nodev1.RuntimeClass) { c.Handler = handler }
}

func selecting(key, value string) classOption {
	return func(c *nodev1.RuntimeClass) {
		c.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{key: value}}
	}
}

type podOption func(*corev1.Pod)

func pod(options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "team"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

func of(class string) podOption { return func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class } }

func requiring(text string) podOption {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, policy.AnnotationRequires, text) }
}

func with(change func(*corev1.PodSpec)) podOption { return func(p *corev1.Pod) { change(&p.Spec) } }

func hostNetwork(s *corev1.PodSpec) { s.HostNetwork = true }

// node has the handlers that are named, in their own words.
func node(name string, handlers ...corev1.NodeRuntimeHandler) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.RuntimeHandlers = handlers
	return n
}

func handler(name string) corev1.NodeRuntimeHandler { return corev1.NodeRuntimeHandler{Name: name} }

func withUserNamespaces(name string, has bool) corev1.NodeRuntimeHandler {
	return corev1.NodeRuntimeHandler{Name: name, Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &has}}
}

func telling(n *corev1.Node, handler, features string) *corev1.Node {
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, policy.AnnotationFeaturesPrefix+handler, features)
	return n
}

// demand is a policy for all namespaces.
func demand(name string, spec v1alpha1.RuntimeClassPolicySpec) *v1alpha1.RuntimeClassPolicy {
	return &v1alpha1.RuntimeClassPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func compiled(t *testing.T, policies ...*v1alpha1.RuntimeClassPolicy) policy.Set {
	t.Helper()
	var out []*policy.Policy
	for _, p := range policies {
		c, err := policy.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return policy.NewSet(out...)
}

func namespace(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	return ns
}

// cluster is classes of each kind on nodes that have them all.
func cluster(t *testing.T, policies ...*v1alpha1.RuntimeClassPolicy) policy.Admission {
	t.Helper()
	return policy.Admission{
		Classes: runtimeclass.NewMap(
			class("runc"),
			class("gvisor", isolating("sandbox"), costing("32Mi")),
			class("kata", isolating("vm"), costing("160Mi")),
			class("fire", isolating("vm"), costing("64Mi"), saying(policy.AnnotationSupports, "checkpoint")),
		),
		Policies: compiled(t, policies...),
		Fleet: policy.NewFleet([]*corev1.Node{
			node("a", withUserNamespaces("runc", true), handler("gvisor"), handler("kata"), handler("fire")),
			node("b", withUserNamespaces("runc", false), handler("gvisor"), handler("kata")),
		}),
	}
}
