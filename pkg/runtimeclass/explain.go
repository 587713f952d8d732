package runtimeclass

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Explanation is where a pod could run, and why not elsewhere.
type Explanation struct {
	Nodes    []NodeMatch // all, by name
	Matching int         // how many of them match
	Sentence string
}

// Explain says in one sentence why nodes do not match:
//
//	0/10 nodes: 5 lack memory, 5 do not match RuntimeClass gvisor (no node label runtime=gvisor)
//
// A node counts once, by the first cause against it. Match has all of them.
// The same query gives the same sentence.
func Explain(q Query) (Explanation, error) {
	nodes, err := Match(q)
	if err != nil {
		return Explanation{}, err
	}
	class := ""
	if q.Class != nil {
		class = q.Class.Name
	}
	e := Explanation{Nodes: nodes}
	groups := map[Cause]*group{}
	for _, n := range nodes {
		if n.OK() {
			e.Matching++
			continue
		}
		cause := n.Why[0].Cause
		if cause == CauseHandler {
			cause = CauseClass // one group: both are the class's doing
		}
		g := groups[cause]
		if g == nil {
			g = &group{cause: cause, class: class, details: map[string]int{}}
			groups[cause] = g
		}
		g.add(n)
	}
	e.Sentence = sentence(e.Matching, len(nodes), slices.Collect(maps.Values(groups)))
	return e, nil
}

// sentence tells the largest group first.
func sentence(matching, all int, groups []*group) string {
	text := fmt.Sprintf("%d/%d nodes", matching, all)
	if all == 0 {
		return text + ": there are none"
	}
	// Between equals, what can pass by itself is told before what cannot.
	order := []Cause{CauseResources, CauseClass, CauseSelector, CauseAffinity, CauseTaint, CauseCordon, CauseName}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.nodes, a.nodes), cmp.Compare(slices.Index(order, a.cause), slices.Index(order, b.cause)))
	})
	var parts []string
	for _, g := range groups {
		parts = append(parts, g.String())
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// group is the nodes that one cause keeps away.
type group struct {
	cause   Cause
	class   string
	nodes   int
	details map[string]int // how many nodes each is true of
}

func (g *group) add(n NodeMatch) {
	g.nodes++
	var own []string
	for _, w := range n.Why {
		same := w.Cause == g.cause || g.cause == CauseClass && w.Cause == CauseHandler
		switch {
		case same && w.Resource == corev1.ResourcePods:
			own = append(own, "room for another pod")
		case same && w.Cause == CauseResources:
			own = append(own, string(w.Resource))
		case same:
			own = append(own, w.Detail)
		}
	}
	g.details[strings.Join(own, " and ")]++
}

// mostDetails bounds the sentence: a cluster can have a label for each node.
const mostDetails = 3

// String is the group's part of the sentence: "5 lack memory".
func (g *group) String() string {
	one := g.nodes == 1
	verb := func(singular, plural string) string {
		if one {
			return singular
		}
		return plural
	}
	switch g.cause {
	case CauseResources:
		return g.shortages()
	case CauseCordon:
		return fmt.Sprintf("%d %s cordoned", g.nodes, verb("is", "are"))
	case CauseName:
		return fmt.Sprintf("%d %s the one that the pod names", g.nodes, verb("is not", "are not"))
	case CauseAffinity:
		return fmt.Sprintf("%d %s not match the pod's node affinity", g.nodes, verb("does", "do"))
	case CauseSelector:
		return fmt.Sprintf("%d %s not match the pod's nodeSelector (%s)", g.nodes, verb("does", "do"), g.why())
	case CauseTaint:
		return fmt.Sprintf("%d %s taints that are not tolerated (%s)", g.nodes, verb("has", "have"), g.why())
	}
	return fmt.Sprintf("%d %s not match RuntimeClass %s (%s)", g.nodes, verb("does", "do"), g.class, g.why())
}

// shortages tells each combination of resources by itself: "3 lack memory, 2 lack cpu and memory".
func (g *group) shortages() string {
	var parts []string
	for _, what := range g.byCount() {
		verb := "lack"
		if g.details[what] == 1 {
			verb = "lacks"
		}
		parts = append(parts, fmt.Sprintf("%d %s %s", g.details[what], verb, what))
	}
	return strings.Join(parts, ", ")
}

// why is the details, with their numbers if there are several.
func (g *group) why() string {
	list := g.byCount()
	if len(list) == 1 {
		return list[0]
	}
	var parts []string
	for i, text := range list {
		if i == mostDetails {
			parts = append(parts, fmt.Sprintf("and %d more reasons", len(list)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%d: %s", g.details[text], text))
	}
	return strings.Join(parts, "; ")
}

// byCount is the details, the most frequent first.
func (g *group) byCount() []string {
	list := slices.Collect(maps.Keys(g.details))
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(g.details[b], g.details[a]), cmp.Compare(a, b))
	})
	return list
}
