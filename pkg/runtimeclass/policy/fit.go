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
	class  *nodev1.RuntimeClass
	level  int
	memory int64 // bytes of overhead
	nodes  int
}

// fit is the class that satisfies what a pod requires at the least cost: the
// least isolation, then the least memory of overhead, then the most nodes, then
// the first by name.
func (c chooser) fit(pod *corev1.Pod, wanted requires) (runtimeclass.Choice, error) {
	var able []candidate
	var others []string
	for _, name := range c.names() {
		class := c.Classes.Get(name)
		if class == nil {
			continue // gone meanwhile
		}
		if why := c.unfit(pod, class, wanted); why != "" {
			others = append(others, name+" "+why)
			continue
		}
		able = append(able, c.candidate(class))
	}
	if len(able) == 0 {
		return runtimeclass.Choice{}, rejection(runtimeclass.Rejection{Reason: ReasonNoFit, Field: requiresField}, "no RuntimeClass has %s%s", wanted, reasons(others))
	}
	slices.SortFunc(able, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.memory, b.memory), cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.class.Name, b.class.Name))
	})
	return runtimeclass.Choice{Class: able[0].class.Name, By: AnnotationRequires, Because: because(wanted, able)}, nil
}

func (c chooser) names() []string {
	if c.Classes == nil {
		return nil
	}
	return slices.Sorted(slices.Values(c.Classes.Names()))
}

func (c chooser) candidate(class *nodev1.RuntimeClass) candidate {
	out := candidate{class: class, level: slices.Index(levels, IsolationOf(class)), nodes: c.Fleet.Nodes(class)}
	if class.Overhead != nil {
		out.memory = class.Overhead.PodFixed.Memory().Value()
	}
	return out
}

// unfit says why a class is none for a pod; empty if it is one.
func (c chooser) unfit(pod *corev1.Pod, class *nodev1.RuntimeClass, wanted requires) string {
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
		if f.Mode == v1alpha1.ModeEnforce {
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
	text := fmt.Sprintf("%s has %s", able[0].class.Name, wanted)
	if len(able) == 1 {
		return text + ", and no other class has"
	}
	first, second := able[0], able[1]
	text += fmt.Sprintf(", as %d others, and ", len(able)-1)
	if len(able) == 2 {
		text = fmt.Sprintf("%s has %s, as %s has, and ", first.class.Name, wanted, second.class.Name)
	}
	switch {
	case first.level != second.level:
		return text + "the least isolation, " + string(levels[first.level])
	case first.memory != second.memory:
		return text + "the least overhead of memory"
	case first.nodes != second.nodes:
		return text + "the most nodes, " + fmt.Sprint(first.nodes)
	}
	return text + "is the first of equals by name"
}

// mostReasons bounds a message: clusters with thousands of classes exist.
const mostReasons = 8

func reasons(list []string) string {
	if len(list) == 0 {
		return ": there is no class at all"
	}
	more := ""
	if len(list) > mostReasons {
		more = fmt.Sprintf("; and %d more", len(list)-mostReasons)
		list = list[:mostReasons]
	}
	return ": " + strings.Join(list, "; ") + more
}
