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
	// Unread names what could not be read, such as Nodes: what it would have told
	// is not known.
	Unread []string
	// Legacy is what annotations from before RuntimeClass stand for.
	Legacy runtimeclass.Legacy
}

// What a snapshot can lack, in Unread and in answers.
const (
	Nodes      = "nodes"
	Pods       = "pods"
	Namespaces = "namespaces"
	Policies   = "policies"
	Known      = "classes"
)

// lacks says that something could not be read.
func (s *Snapshot) lacks(what string) bool { return slices.Contains(s.Unread, what) }

// AddManifests adds what a set of manifests has; each object takes the place of
// what is there of that name. Of two of one name in the set it adds the first.
// What cannot be converted or compiled is Lint's to tell.
func (s *Snapshot) AddManifests(set *manifests.Set) {
	seen, doubles := distinct(set)
	left(&s.Classes, "RuntimeClass", seen)
	left(&s.Policies, "RuntimeClassPolicy", seen)
	left(&s.Namespaces, "Namespace", seen)
	left(&s.Nodes, "Node", seen)
	left(&s.Pods, "Pod", seen)
	for _, o := range set.Objects {
		if doubles[o] != nil {
			continue
		}
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

// distinct is the objects of a set by their names, and those that have the name
// of an earlier one, with that one.
func distinct(set *manifests.Set) (seen map[string]bool, doubles map[*manifests.Object]*manifests.Object) {
	seen, doubles = map[string]bool{}, map[*manifests.Object]*manifests.Object{}
	firsts := map[string]*manifests.Object{}
	for _, o := range set.Objects {
		if !o.Named() {
			continue // the server gives it one
		}
		key := o.String()
		if first := firsts[key]; first != nil {
			doubles[o] = first
			continue
		}
		firsts[key], seen[key] = o, true
	}
	return seen, doubles
}

// left takes those away that others replace. The list's memory is others'.
func left[T metav1.Object](list *[]T, kind string, replaced map[string]bool) {
	*list = slices.DeleteFunc(slices.Clone(*list), func(o T) bool {
		return replaced[(&manifests.Object{Object: o, Kind: kind}).String()]
	})
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

// beside is how many pods that have not ended a class has in a namespace, without
// one of them.
func (s *Snapshot) beside(pod *corev1.Pod) func(namespace, class string) int {
	return func(namespace, class string) int {
		n := 0
		for _, p := range s.Pods {
			same := p.Name == pod.Name && p.Namespace == pod.Namespace
			if !same && p.Namespace == namespace && runtimeclass.NameOf(p) == class && !ended(p) {
				n++
			}
		}
		return n
	}
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
