package classes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/component-helpers/resource"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/classes/manifests"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// Snapshot is what is known of a cluster.
type Snapshot struct {
	Classes    []*nodev1.RuntimeClass
	Policies   []*v1alpha1.RuntimeClassPolicy
	Namespaces []*corev1.Namespace
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod
	// Legacy is what annotations from before RuntimeClass stand for.
	Legacy runtimeclass.Legacy
}

// AddManifests adds what a set of manifests has. What cannot be converted or
// compiled is Lint's to tell.
func (s *Snapshot) AddManifests(set *manifests.Set) {
	for _, o := range set.Objects {
		switch object := o.Object.(type) {
		case *nodev1.RuntimeClass:
			s.Classes = append(s.Classes, object)
		case *nodev1beta1.RuntimeClass:
			s.Classes = append(s.Classes, runtimeclass.FromV1beta1(object))
		case *nodev1alpha1.RuntimeClass:
			s.Classes = append(s.Classes, runtimeclass.FromV1alpha1(object))
		case *v1alpha1.RuntimeClassPolicy:
			s.Policies = append(s.Policies, object)
		case *corev1.Namespace:
			s.Namespaces = append(s.Namespaces, object)
		case *corev1.Node:
			s.Nodes = append(s.Nodes, object)
		case *corev1.Pod:
			s.Pods = append(s.Pods, object)
		}
	}
}

// admission is what a webhook of the cluster would go by.
func (s *Snapshot) admission() policy.Admission {
	a := policy.Admission{Classes: runtimeclass.NewMap(s.Classes...), Legacy: s.Legacy}
	if len(s.Nodes) > 0 {
		a.Fleet = policy.NewFleet(s.Nodes)
	}
	if c, _ := policy.DefaultOf(s.Classes); c != nil {
		a.Default = c.Name
	}
	var compiled []*policy.Policy
	for _, p := range s.Policies {
		c, err := policy.Compile(p)
		if err != nil {
			c = policy.Unusable(p, err)
		}
		compiled = append(compiled, c)
	}
	a.Policies = policy.NewSet(compiled...)
	return a
}

// namespace is the one of that name. Of one that is not known the name is.
func (s *Snapshot) namespace(name string) *corev1.Namespace {
	i := slices.IndexFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	if i >= 0 {
		return s.Namespaces[i]
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// ended says that a pod takes nothing any more.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// used is what the pods on each node request.
func (s *Snapshot) used() map[string]corev1.ResourceList {
	out := map[string]corev1.ResourceList{}
	for _, p := range s.Pods {
		if p.Spec.NodeName == "" || ended(p) {
			continue
		}
		sum := out[p.Spec.NodeName]
		if sum == nil {
			sum = corev1.ResourceList{}
			out[p.Spec.NodeName] = sum
		}
		requests := podresources.PodRequests(p, podresources.PodResourcesOptions{})
		requests[corev1.ResourcePods] = onePod
		for name, q := range requests {
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	return out
}
