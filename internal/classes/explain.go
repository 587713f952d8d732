package classes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// Pod is why a pod finds a node, or does not.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Node is where it runs already; empty if it has none.
	Node        string `json:"node,omitempty"`
	Schedulable bool   `json:"schedulable"`
	Sentence    string `json:"sentence"` // where it can run, and why not elsewhere
	// Refused is why admission lets no such pod in; empty if it does.
	Refused  string                 `json:"refused,omitempty"`
	Class    string                 `json:"class,omitempty"`
	Handler  string                 `json:"handler,omitempty"`
	Injected *runtimeclass.Injected `json:"injected,omitempty"`
	Policies []string               `json:"policies,omitempty"` // that apply, by name
	Warnings []string               `json:"warnings,omitempty"`
	Nodes    []Node                 `json:"nodes,omitempty"`
}

// Node is what speaks against nodes; nothing does against those that match.
type Node struct {
	Names []string `json:"names"`
	Why   []string `json:"why,omitempty"`
}

// ExplainPod looks a pod up and explains it. A pod that has no node yet is
// explained as if it were created now.
func ExplainPod(s *Snapshot, namespace, name string) (*Pod, error) {
	i := slices.IndexFunc(s.Pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no pod %s/%s%s: %w", namespace, name, s.elsewhere(name), errdefs.ErrNotFound)
	}
	return explainPod(s, s.Pods[i])
}

// elsewhere says which namespaces have a pod of that name.
func (s *Snapshot) elsewhere(name string) string {
	var in []string
	for _, p := range s.Pods {
		if p.Name == name {
			in = append(in, p.Namespace)
		}
	}
	if len(in) == 0 {
		return ""
	}
	slices.Sort(in)
	if len(in) > mostNames {
		in = append(in[:mostNames], "others")
	}
	return fmt.Sprintf("; namespace %s has one: choose with -n", strings.Join(in, ", "))
}

// mostNames bounds how many names a message has.
const mostNames = 5

// blind says what could not be read and would matter.
func (s *Snapshot) blind() (out []string) {
	for _, lack := range []struct{ what, then string }{
		{Pods, "pods cannot be read, so what those on a node request is not known, and each node counts as empty"},
		{Namespaces, "namespaces cannot be read, so their labels are not known, and policies that select by these may be missing"},
		{Policies, "policies cannot be read, so none is applied"},
	} {
		if s.lacks(lack.what) && (lack.what != Namespaces || len(s.Policies) > 0) {
			out = append(out, lack.then)
		}
	}
	return out
}

func explainPod(s *Snapshot, pod *corev1.Pod) (*Pod, error) {
	admission, ns := s.admission(), s.namespace(pod.Namespace)
	admission.Usage = s.beside(pod)
	out := &Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName}
	if ended(pod) {
		out.Class, out.Sentence = runtimeclass.NameOf(pod), fmt.Sprintf("it has ended (%s), and is not scheduled again", pod.Status.Phase)
		return out, nil
	}
	for _, p := range admission.Policies.For(ns) {
		out.Policies = append(out.Policies, p.Name)
	}
	if out.Node != "" {
		in, err := runtimeclass.InjectedOf(pod)
		if err != nil {
			out.Warnings = append(out.Warnings, err.Error())
		}
		out.Injected, out.Class, out.Schedulable = in, runtimeclass.NameOf(pod), true
		out.Sentence = "it has node " + out.Node
		if c := admission.Classes.Get(out.Class); c != nil {
			out.Handler = c.Handler
		}
		return out, nil
	}
	d, err := admission.Create(pod, ns)
	out.Warnings = append(s.blind(), d.Warnings...)
	if err != nil {
		return out, out.refuse(err)
	}
	if d.Class != nil {
		out.Class, out.Handler, out.Injected = d.Class.Name, d.Class.Handler, &d.Injected
	}
	verdict, err := admission.Check(d.Pod, ns)
	out.Warnings = append(out.Warnings, verdict.Warnings...)
	if err != nil {
		return out, out.refuse(err)
	}
	if s.lacks(Nodes) {
		out.Sentence = unseen
		return out, nil
	}
	e, err := runtimeclass.Explain(runtimeclass.Query{Class: d.Class, Pod: d.Pod, Nodes: s.Nodes, Used: s.used()})
	if err != nil {
		return nil, fmt.Errorf("match pod %s/%s with nodes: %w", pod.Namespace, pod.Name, err)
	}
	out.Sentence, out.Schedulable, out.Nodes = e.Sentence, e.Matching > 0, grouped(e.Nodes)
	if gates := d.Pod.Spec.SchedulingGates; len(gates) > 0 {
		var names []string
		for _, g := range gates {
			names = append(names, g.Name)
		}
		out.Schedulable = false
		out.Sentence = fmt.Sprintf("it waits until somebody removes its scheduling gates (%s); then %s", strings.Join(names, ", "), e.Sentence)
	}
	return out, nil
}

// unseen is where something can run if nodes cannot be read.
const unseen = "nodes cannot be read, so it is not known which match"

// refuse takes a rejection over; any other error is no answer.
func (p *Pod) refuse(err error) error {
	var r *runtimeclass.Rejection
	if !errors.As(err, &r) {
		return err
	}
	p.Refused, p.Sentence = r.Error(), "admission refuses it: "+r.Error()
	if p.Class == "" {
		p.Class = r.Class
	}
	return nil
}

// grouped puts nodes together that have the same reasons against them: first
// those that match, then the largest group.
func grouped(nodes []runtimeclass.NodeMatch) []Node {
	var out []Node
	for _, n := range nodes {
		var why []string
		for _, w := range n.Why {
			why = append(why, w.Detail)
		}
		i := slices.IndexFunc(out, func(g Node) bool { return slices.Equal(g.Why, why) })
		if i < 0 {
			out = append(out, Node{Why: why})
			i = len(out) - 1
		}
		out[i].Names = append(out[i].Names, n.Node)
	}
	slices.SortStableFunc(out, func(a, b Node) int {
		if (len(a.Why) == 0) != (len(b.Why) == 0) {
			return len(a.Why) - len(b.Why)
		}
		return len(b.Names) - len(a.Names)
	})
	return out
}

// ClassReport is a class, and why nodes match it or not.
type ClassReport struct {
	Class
	Sentence string    `json:"sentence"`
	Groups   []Node    `json:"nodeGroups,omitempty"`
	Features []Feature `json:"features,omitempty"`
	Faults   []string  `json:"faults,omitempty"` // what is wrong with the class itself
	Policies []string  `json:"policies,omitempty"`
	Users    []string  `json:"users,omitempty"` // namespaces with pods of it, and how many
}

// Feature is something that the class can do or not, and how that is known.
type Feature struct {
	Name    v1alpha1.Feature `json:"name"`
	Support policy.Support   `json:"support"`
	Why     string           `json:"why"`
}

// ExplainClass looks a class up and explains it.
func ExplainClass(s *Snapshot, name string) (*ClassReport, error) {
	class, err := runtimeclass.Find(runtimeclass.NewMap(s.Classes...), name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	}
	all, err := List(s)
	if err != nil {
		return nil, err
	}
	e, err := runtimeclass.Explain(runtimeclass.Query{Class: class, Nodes: s.Nodes})
	if err != nil {
		return nil, fmt.Errorf("match RuntimeClass %s with nodes: %w", name, err)
	}
	out := &ClassReport{
		Class:    all[slices.IndexFunc(all, func(c Class) bool { return c.Name == name })],
		Sentence: e.Sentence, Groups: grouped(e.Nodes), Features: s.features(class), Users: s.users(name),
	}
	if s.lacks(Nodes) {
		out.Sentence = unseen
	}
	for _, fault := range append(runtimeclass.Validate(class), policy.ValidateClass(class)...) {
		out.Faults = append(out.Faults, fault.Error())
	}
	for _, p := range s.admission().Policies {
		if len(p.Spec.AllowedClasses) > 0 && !slices.Contains(p.Spec.AllowedClasses, name) {
			out.Policies = append(out.Policies, p.Name+" does not allow it")
		} else if !policy.Isolates(out.Isolation, p.Spec.MinimumIsolation) {
			out.Policies = append(out.Policies, fmt.Sprintf("%s demands isolation %s", p.Name, p.Spec.MinimumIsolation))
		}
	}
	return out, nil
}

// features are those of which something is known.
func (s *Snapshot) features(class *nodev1.RuntimeClass) []Feature {
	var out []Feature
	fleet := s.admission().Fleet
	for _, name := range fleet.Features(class) {
		support, why := fleet.Supports(class, name)
		out = append(out, Feature{name, support, why})
	}
	return out
}

// users counts the pods of a class by their namespaces.
func (s *Snapshot) users(class string) []string {
	counts := map[string]int{}
	for _, p := range s.Pods {
		if runtimeclass.NameOf(p) == class && !ended(p) {
			counts[p.Namespace]++
		}
	}
	var out []string
	for ns, n := range counts {
		out = append(out, fmt.Sprintf("%s (%d)", ns, n))
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
