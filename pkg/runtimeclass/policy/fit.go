package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
)

// AnnotationRequires is where a pod says what its class must have, instead of
// which it is: "isolation=vm,userNamespaces,checkpoint". A pod that also names a
// class is refused if that class has it not.
const AnnotationRequires = "fairlead.run/requires"

const requiresField = "metadata.annotations[" + AnnotationRequires + "]"

// Reasons of this package, beside those of package runtimeclass.
const (
	// ReasonRequires is an AnnotationRequires that cannot be read.
	ReasonRequires runtimeclass.Reason = "RequiresInvalid"
	// ReasonNoFit is that no class satisfies AnnotationRequires.
	ReasonNoFit runtimeclass.Reason = "NoClassFits"
)

// requires is what a pod demands of its class.
type requires struct {
	isolation v1alpha1.Isolation // empty for any
	features  map[string]v1alpha1.Feature
}

// String writes it as the annotation has it, in one order.
func (r requires) String() string {
	var parts []string
	if r.isolation != "" {
		parts = append(parts, "isolation="+string(r.isolation))
	}
	return strings.Join(append(parts, sortedNames(r.features)...), ",")
}

func parseRequires(text string) (requires, error) {
	r := requires{}
	var rest []string
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		name, value, assigned := strings.Cut(word, "=")
		if !assigned {
			rest = append(rest, word)
			continue
		}
		level := v1alpha1.Isolation(strings.TrimSpace(value))
		if strings.TrimSpace(name) != "isolation" || !slices.Contains(levels, level) || r.isolation != "" && r.isolation != level {
			return r, rejection(runtimeclass.Rejection{Reason: ReasonRequires, Field: requiresField}, "%.60q cannot be read: write isolation=none, isolation=sandbox or isolation=vm once, and features without a value", word)
		}
		r.isolation = level
	}
	features, err := listed(strings.Join(rest, ","))
	if err != nil {
		return r, rejection(runtimeclass.Rejection{Reason: ReasonRequires, Field: requiresField}, "%s", err.Error())
	}
	r.features = features
	return r, nil
}

func rejection(r runtimeclass.Rejection, format string, args ...any) error {
	r.Detail = fmt.Sprintf(format, args...)
	return &r
}

// candidate is a class that satisfies a pod.
type candidate struct {
	offer
	level  int
	nodes  int
	usable bool // a node of it is one that the pod itself may use
}

// fit is the class that satisfies what a pod requires at the least cost: the
// least isolation, then the least memory of overhead, then the most nodes, then
// the first by name. Classes none of whose nodes the pod may use come last.
func (c chooser) fit(pod *corev1.Pod, wanted requires) (runtimeclass.Choice, error) {
	catalog, ok := c.Classes.(*Catalog)
	if !ok {
		catalog = NewCatalog(c.Classes)
	}
	var able []candidate
	nodes := c.nodesFor(pod)
	for i := range catalog.kinds {
		able = c.fitKind(pod, &catalog.kinds[i], wanted, nodes, able)
	}
	if len(able) == 0 {
		return runtimeclass.Choice{}, rejection(runtimeclass.Rejection{Reason: ReasonNoFit, Field: requiresField}, "no RuntimeClass has %s%s", wanted, c.reasons(pod, catalog, wanted))
	}
	slices.SortFunc(able, func(a, b candidate) int {
		return cmp.Or(first(a.usable, b.usable), cmp.Compare(a.level, b.level), cmp.Compare(a.memory, b.memory), cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.name, b.name))
	})
	return runtimeclass.Choice{Class: able[0].name, By: AnnotationRequires, Because: because(wanted, able)}, nil
}

// first compares so that what is true comes before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// fitKind adds the classes of one kind that satisfy a pod.
//
// Larger: a parameter more, of what was worked out once for all kinds.
func (c chooser) fitKind(pod *corev1.Pod, k *kind, wanted requires, nodes []*corev1.Node, able []candidate) []candidate {
	if c.unfit(pod, k.like, wanted, ReasonNotAllowed) != "" {
		return able
	}
	one := candidate{level: k.level, nodes: c.Fleet.Nodes(k.like), usable: c.usable(pod, k.like, nodes)}
	for _, o := range k.classes {
		if c.policies.allow(o.name) {
			one.offer = o
			able = append(able, one)
		}
	}
	return able
}

// nodesFor are the nodes that a pod may use by what it says itself: its selector,
// its affinity and its node. Nil is all.
func (c chooser) nodesFor(pod *corev1.Pod) []*corev1.Node {
	free := len(pod.Spec.NodeSelector) == 0 && pod.Spec.NodeName == "" && (pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil)
	if free || c.Fleet.empty() {
		return nil
	}
	alone := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: pod.Spec.NodeSelector, NodeName: pod.Spec.NodeName, Affinity: pod.Spec.Affinity,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // which class tolerates what comes later
	}}
	out := []*corev1.Node{}
	matches, err := runtimeclass.Match(runtimeclass.Query{Pod: alone, Nodes: c.Fleet.all})
	for i := range matches { // in the order of the fleet, which is by name, too
		if err == nil && matches[i].OK() {
			out = append(out, c.Fleet.all[i])
		}
	}
	return out
}

// usable says whether a pod may run on one of these nodes with a class.
func (c chooser) usable(pod *corev1.Pod, class *nodev1.RuntimeClass, nodes []*corev1.Node) bool {
	if nodes == nil {
		return true
	}
	serving := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !runtimeclass.Serves(n, class) })
	if len(serving) == 0 {
		return false
	}
	some, err := runtimeclass.Any(runtimeclass.Query{Class: class, Pod: pod, Nodes: serving})
	return some && err == nil
}

// unfit says why a class is none for a pod, but for some reasons; empty if it is
// one.
func (c chooser) unfit(pod *corev1.Pod, class *nodev1.RuntimeClass, wanted requires, but ...runtimeclass.Reason) string {
	if why := c.Fleet.unmet(class, wanted); why != "" {
		return why
	}
	if !c.Fleet.empty() && c.Fleet.Nodes(class) == 0 {
		return "has no node with handler " + class.Handler
	}
	if class.Scheduling != nil {
		for _, k := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
			if has, ok := pod.Spec.NodeSelector[k]; ok && has != class.Scheduling.NodeSelector[k] {
				return fmt.Sprintf("selects nodes with %s=%s, and the pod %s=%s", k, class.Scheduling.NodeSelector[k], k, has)
			}
		}
	}
	for _, f := range c.judge(pod, class, c.policies) {
		if f.Mode == v1alpha1.ModeEnforce && !slices.Contains(but, f.Reason) {
			return "is refused: " + f.Detail
		}
	}
	return ""
}

// unmet says which requirement a class is not known to satisfy.
func (f *Fleet) unmet(class *nodev1.RuntimeClass, wanted requires) string {
	if has := IsolationOf(class); !Isolates(has, wanted.isolation) {
		return "has isolation " + string(has)
	}
	for _, k := range slices.Sorted(maps.Keys(wanted.features)) {
		feature := wanted.features[k]
		switch support, why := f.Supports(class, feature); support {
		case Supported:
		case Unknown:
			return fmt.Sprintf("is not known to have %s (%s)", feature, why)
		default:
			return fmt.Sprintf("lacks %s (%s)", feature, why)
		}
	}
	return ""
}

// because says which class won, and over which.
func because(wanted requires, able []candidate) string {
	text := fmt.Sprintf("%s has %s", able[0].name, wanted)
	if len(able) == 1 {
		return text + ", and no other class has"
	}
	best, second := able[0], able[1]
	text += fmt.Sprintf(", as %d others, and ", len(able)-1)
	if len(able) == 2 {
		text = fmt.Sprintf("%s has %s, as %s has, and ", best.name, wanted, second.name)
	}
	switch {
	case best.usable != second.usable:
		return text + "nodes that the pod may use"
	case best.level != second.level:
		return text + "the least isolation, " + string(levels[best.level])
	case best.memory != second.memory:
		return text + "the least overhead of memory"
	case best.nodes != second.nodes:
		return text + "the most nodes, " + fmt.Sprint(best.nodes)
	}
	return text + "is the first of equals by name"
}

// mostReasons bounds a message: clusters with thousands of classes exist.
const mostReasons = 8

// reasons goes through the first classes by name and says why each is none.
func (c chooser) reasons(pod *corev1.Pod, catalog *Catalog, wanted requires) string {
	names, list := slices.Sorted(slices.Values(catalog.Names())), []string{}
	for _, name := range names[:min(len(names), mostReasons)] {
		if class := catalog.Get(name); class != nil {
			list = append(list, name+" "+c.unfit(pod, class, wanted))
		}
	}
	switch {
	case len(names) == 0:
		return ": there is no class at all"
	case len(names) > mostReasons:
		list = append(list, fmt.Sprintf("and %d more", len(names)-mostReasons))
	}
	return ": " + strings.Join(list, "; ")
}
