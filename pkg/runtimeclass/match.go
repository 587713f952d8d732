package runtimeclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// LabelHandlerPrefix and the name of a handler make the label of a node by which
// Fairlead says that the handler was tried there: "true" if it works, anything
// else if it does not. A node without any such label is not Fairlead's, or not
// yet, and says nothing by that.
const LabelHandlerPrefix = "handler.fairlead.run/"

// Query asks which nodes could run a pod on a class. Nothing in it is changed.
type Query struct {
	// Class is the pod's; nil for the default behaviour.
	Class *nodev1.RuntimeClass
	// Pod narrows the answer by what it wants itself, after what the class
	// injects. Nil asks for the class alone, without resources.
	Pod   *corev1.Pod
	Nodes []*corev1.Node
	// Used is what the pods on a node request already, by the node's name, with
	// their number as "pods". Where it is missing, a node counts as empty.
	Used map[string]corev1.ResourceList
}

// Cause says in a word why a node is none for a pod.
type Cause string

// The causes, in the order in which a node is looked at.
const (
	CauseHandler   Cause = "Handler"   // the node does not have the class's handler, or it fails there
	CauseClass     Cause = "Class"     // the node has not the labels that the class selects
	CauseName      Cause = "Name"      // the pod names another node
	CauseSelector  Cause = "Selector"  // the node has not the labels that the pod selects
	CauseAffinity  Cause = "Affinity"  // the pod's required node affinity
	CauseCordon    Cause = "Cordon"    // the node takes no new pods
	CauseTaint     Cause = "Taint"     // a taint that neither class nor pod tolerates
	CauseResources Cause = "Resources" // requests and overhead are more than is free
)

// Why is one reason why a node does not match.
type Why struct {
	Cause  Cause
	Detail string
	// Resource is what is lacking, for CauseResources.
	Resource corev1.ResourceName
}

// NodeMatch is what was found of a node.
type NodeMatch struct {
	Node string
	Why  []Why // every reason against it; none means that it matches
}

// OK says that the node matches.
func (n NodeMatch) OK() bool { return len(n.Why) == 0 }

// Match looks at every node, and answers by their names. A pod that its class
// does not admit fits nowhere: that is a *Rejection, as Admission gives it.
func Match(q Query) ([]NodeMatch, error) {
	d, err := newDemand(q)
	if err != nil {
		return nil, err
	}
	out := make([]NodeMatch, 0, len(q.Nodes))
	for _, n := range q.Nodes {
		out = append(out, NodeMatch{Node: n.Name, Why: d.against(n, q.Used[n.Name])})
	}
	slices.SortStableFunc(out, func(a, b NodeMatch) int { return strings.Compare(a.Node, b.Node) })
	return out, nil
}

// Any says whether some node matches, and looks no further then.
func Any(q Query) (bool, error) {
	d, err := newDemand(q)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(q.Nodes, func(n *corev1.Node) bool { return len(d.against(n, q.Used[n.Name])) == 0 }), nil
}

// demand is a query worked out once for all nodes.
type demand struct {
	class, handler string
	selects        map[string]string // by the class
	wants          map[string]string // by the pod, and not by the class
	node           string            // that the pod names
	affinity       *nodeaffinity.RequiredNodeAffinity
	tolerations    []corev1.Toleration
	requests       corev1.ResourceList // nil without a pod
	overhead       corev1.ResourceList
}

func newDemand(q Query) (demand, error) {
	var d demand
	pod := &corev1.Pod{}
	if q.Pod != nil {
		pod = q.Pod.DeepCopy()
	}
	asked := ""
	if q.Class != nil {
		asked = q.Class.Name
	}
	if name := NameOf(pod); name != "" && name != asked {
		return d, fmt.Errorf("match nodes: the pod names RuntimeClass %s, and the query has %s; give it the class that Find returns", name, orNone(asked))
	}
	if c := q.Class; c != nil {
		if err := inject(pod, c, &Injected{}); err != nil {
			return d, err
		}
		d.class, d.handler = c.Name, c.Handler
		if c.Scheduling != nil {
			d.selects = c.Scheduling.NodeSelector
		}
	}
	d.wants = maps.Clone(pod.Spec.NodeSelector)
	maps.DeleteFunc(d.wants, func(key, _ string) bool { _, ofClass := d.selects[key]; return ofClass })
	d.node, d.tolerations = pod.Spec.NodeName, pod.Spec.Tolerations
	if pod.Spec.Affinity != nil {
		required := nodeaffinity.NewRequiredNodeAffinity(nil, pod.Spec.Affinity)
		d.affinity = &required
	}
	if q.Pod != nil {
		d.overhead = pod.Spec.Overhead
		d.requests = resource.PodRequests(pod, resource.PodResourcesOptions{})
		d.requests[corev1.ResourcePods] = onePod
	}
	return d, nil
}

// against is all that speaks against a node.
func (d demand) against(n *corev1.Node, used corev1.ResourceList) []Why {
	var out []Why
	add := func(cause Cause, details ...string) {
		for _, text := range details {
			out = append(out, Why{Cause: cause, Detail: text})
		}
	}
	if why := handlerMissing(n, d.handler); why != "" {
		add(CauseHandler, why)
	}
	add(CauseClass, unlabelled(n, d.selects)...)
	if d.node != "" && d.node != n.Name {
		add(CauseName, "the pod names node "+d.node)
	}
	add(CauseSelector, unlabelled(n, d.wants)...)
	if why := d.repelled(n); why != "" {
		add(CauseAffinity, why)
	}
	if n.Spec.Unschedulable && !d.tolerates(cordon) {
		add(CauseCordon, "it is cordoned")
	}
	add(CauseTaint, d.untolerated(n)...)
	return append(out, d.lacking(n, used)...)
}

// handlerMissing says why a handler cannot be had on a node. What a node does
// not tell is not held against it: older kubelets and runtimes list no handlers.
func handlerMissing(n *corev1.Node, handler string) string {
	if handler == "" {
		return ""
	}
	label := LabelHandlerPrefix + handler
	verdict, tried := n.Labels[label]
	if tried && verdict != "true" {
		return fmt.Sprintf("runtime handler %s does not work there, says node label %s=%s", handler, label, verdict)
	}
	listed := slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool { return h.Name == handler })
	if len(n.Status.RuntimeHandlers) > 0 && !listed {
		return "no runtime handler " + handler
	}
	if !tried && !listed && hasHandlerLabel(n) {
		return "no node label " + label
	}
	return ""
}

func hasHandlerLabel(n *corev1.Node) bool {
	for key := range n.Labels {
		if strings.HasPrefix(key, LabelHandlerPrefix) {
			return true
		}
	}
	return false
}

// unlabelled says which labels of a selector a node has not, by key.
func unlabelled(n *corev1.Node, selector map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		has, ok := n.Labels[key]
		switch {
		case !ok:
			out = append(out, "no node label "+key+"="+selector[key])
		case has != selector[key]:
			out = append(out, fmt.Sprintf("node label %s is %s, not %s", key, quoteEmpty(has), quoteEmpty(selector[key])))
		}
	}
	return out
}

func quoteEmpty(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

func (d demand) repelled(n *corev1.Node) string {
	if d.affinity == nil {
		return ""
	}
	ok, err := d.affinity.Match(n)
	switch {
	case ok:
		return ""
	case err != nil:
		return "required node affinity that cannot be read: " + err.Error()
	}
	return "required node affinity"
}

// cordon is what a cordoned node is like for those who tolerate taints.
var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func (d demand) tolerates(t corev1.Taint) bool {
	// The zero logger drops what it is told, which is about numbers that are none.
	return scheduling.TolerationsTolerateTaint(klog.Logger{}, d.tolerations, &t, true)
}

// untolerated lists the taints of a node that keep the pod away, by their text.
// PreferNoSchedule does not.
func (d demand) untolerated(n *corev1.Node) []string {
	var out []string
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		if n.Spec.Unschedulable && t.MatchTaint(&cordon) {
			continue // the same, told once
		}
		if !d.tolerates(t) {
			out = append(out, "taint "+t.ToString())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Serves says whether a node has the handler of a class and the labels that the
// class selects, whatever else keeps pods away from it: taints and cordons pass.
func Serves(n *corev1.Node, c *nodev1.RuntimeClass) bool {
	if handlerMissing(n, c.Handler) != "" {
		return false
	}
	return c.Scheduling == nil || len(unlabelled(n, c.Scheduling.NodeSelector)) == 0
}
