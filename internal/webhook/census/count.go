package census

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// What stands in a label for classes and handlers that have no name of their own
// there.
const (
	NoClass      = "_none"    // no class at all
	MissingClass = "_missing" // it does not exist: names of that kind are anybody's
	Other        = "_other"   // too many for a label
)

// A cluster can have thousands of classes, and everybody who may write one names
// it. More than these are not told by name.
const (
	mostClasses  = 100
	mostHandlers = 50
	mostOfANode  = 16 // handlers, of a single node
)

// Why pods have no node.
const (
	unsupported = "unsupported" // no node has the class
	shut        = "closed"      // all nodes of the class have taints or cordons
	full        = "full"        // nodes of the class lack room
	unfit       = "other"       // something else of the pod
	gated       = "gated"       // nobody has been asked to find one
	unasked     = "untried"     // no scheduler has said anything
)

// seen is what a census is made of. Nothing in it is changed.
type seen struct {
	classes []*nodev1.RuntimeClass
	nodes   []*corev1.Node
	pods    map[group]int
}

type (
	ofClass   struct{ class, what string }
	ofHandler struct{ handler, isolation string }
)

// counts is one census, by labels. It does not change once it is made.
type counts struct {
	classes     map[ofHandler]int // how many there are
	defaults    int               // of these, by what they say of themselves
	homeless    map[bool]int      // without a node; true for those with pods
	nodes       map[string]int    // by the number of handlers that work there
	standings   map[string]standing
	pods        map[ofClass]int // by phase
	unscheduled map[ofClass]int // by reason
	stranded    map[string]int
	handlers    map[string]*[nSayings]int
	naming      map[string]int // classes by handler

	missing int // handlers that classes name and no node can have

	taken time.Time
	took  time.Duration
}

// count takes a census.
func count(s seen, x *index) *counts {
	c := &counts{
		classes: map[ofHandler]int{}, homeless: map[bool]int{}, nodes: map[string]int{}, standings: map[string]standing{},
		pods: map[ofClass]int{}, unscheduled: map[ofClass]int{}, stranded: map[string]int{},
		handlers: map[string]*[nSayings]int{}, naming: map[string]int{},
	}
	c.countHandlers(s.classes, x.matcher.kinds)
	for _, class := range s.classes {
		found := x.matcher.of(class)
		if x.shown[class.Name] {
			c.standings[class.Name] = found
		}
		if found.supporting() == 0 {
			c.homeless[x.used[class.Name]]++
		}
		if class.Annotations[policy.AnnotationDefault] == "true" {
			c.defaults++
		}
	}
	c.countPods(s, x)
	return c
}

// index is what classes are looked up in while a census is taken.
type index struct {
	classes map[string]*nodev1.RuntimeClass
	used    map[string]bool // by pods, also those that do not exist
	shown   map[string]bool // by name
	matcher *matcher
}

func newIndex(s seen) *index {
	x := &index{classes: map[string]*nodev1.RuntimeClass{}, used: map[string]bool{}, matcher: newMatcher(s.nodes, s.classes)}
	for _, class := range s.classes {
		x.classes[class.Name] = class
	}
	for g := range s.pods {
		x.used[g.class] = true
	}
	x.shown = chosen(s.classes, x.used)
	return x
}

// label is what stands for a class.
func (x *index) label(class string) string {
	switch {
	case class == "":
		return NoClass
	case x.classes[class] == nil:
		return MissingClass
	case !x.shown[class]:
		return Other
	}
	return class
}

// reason is why pods of a class have no node. What a scheduler says is about all
// that keeps a pod away; that there is no node of its class comes first.
func (x *index) reason(class string, v cluster.Verdict) string {
	var nodes standing
	if c := x.classes[class]; c != nil {
		nodes = x.matcher.of(c)
	}
	switch {
	case v == cluster.Gated:
		return gated
	case v == cluster.Unasked:
		return unasked
	case class != "" && nodes.supporting() == 0:
		return unsupported
	case class != "" && nodes.taking() == 0:
		return shut
	case v == cluster.Full:
		return full
	}
	return unfit
}

// chosen is the classes that are told by name: those with pods before the others,
// and by name within both. All replicas choose the same.
func chosen(classes []*nodev1.RuntimeClass, used map[string]bool) map[string]bool {
	var with, without []string
	for _, c := range classes {
		if used[c.Name] {
			with = append(with, c.Name)
		} else {
			without = append(without, c.Name)
		}
	}
	slices.Sort(with)
	slices.Sort(without)
	all, out := slices.Concat(with, without), map[string]bool{}
	for _, name := range all[:min(len(all), mostClasses)] {
		out[name] = true
	}
	return out
}

// rank puts what is so before what is not.
func rank(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// countHandlers counts what nodes say of handlers, and which classes name them.
func (c *counts) countHandlers(classes []*nodev1.RuntimeClass, kinds []kind) {
	said, quiet := map[string]*[nSayings]int{}, 0
	of := func(handler string) *[nSayings]int {
		if said[handler] == nil {
			said[handler] = &[nSayings]int{}
		}
		return said[handler]
	}
	for _, k := range kinds {
		if silent(k.node) {
			quiet += k.count
			c.nodes["untold"] += k.count
			continue
		}
		work := 0
		for _, handler := range handlersOf(k.node) {
			says := saysOf(k.node, handler)
			of(handler)[says] += k.count
			if says == handlerWorks || says == handlerListed {
				work++
			}
		}
		c.nodes[atMost(work)] += k.count
	}
	naming := map[string]int{}
	for _, class := range classes {
		naming[class.Handler]++
		of(class.Handler)
	}
	for handler, n := range said {
		n[handlerUntold] = quiet
		if naming[handler] > 0 && n[handlerWorks]+n[handlerListed]+quiet == 0 {
			c.missing++
		}
	}
	// Those come first of which something is wrong, then those that classes name.
	sorted := slices.SortedFunc(maps.Keys(said), func(a, b string) int {
		broken := func(n *[nSayings]int) bool { return n[handlerFails]+n[handlerUnlisted] > 0 }
		return cmp.Or(rank(broken(said[a]), broken(said[b])), rank(naming[a] > 0, naming[b] > 0), cmp.Compare(a, b))
	})
	for i, handler := range sorted {
		if i < mostHandlers {
			c.handlers[handler], c.naming[handler] = said[handler], naming[handler]
		}
	}
	for _, class := range classes {
		handler := class.Handler
		if c.handlers[handler] == nil {
			handler = Other
		}
		c.classes[ofHandler{handler, string(policy.IsolationOf(class))}]++
	}
}

func atMost(handlers int) string {
	if handlers > mostOfANode {
		return "more"
	}
	return strconv.Itoa(handlers)
}

// countPods counts pods, those that wait for a node, and those that wait on one
// that cannot start them.
func (c *counts) countPods(s seen, x *index) {
	// From zero on, so that what comes is seen as more than there was.
	for _, label := range slices.AppendSeq([]string{NoClass}, maps.Keys(c.standings)) {
		c.pods[ofClass{label, string(corev1.PodPending)}] = 0
		c.pods[ofClass{label, string(corev1.PodRunning)}] = 0
	}
	nodes := map[string]*corev1.Node{}
	for _, n := range s.nodes {
		nodes[n.Name] = n
	}
	for g, n := range s.pods {
		label := x.label(g.class)
		c.pods[ofClass{label, string(g.phase)}] += n
		switch class := x.classes[g.class]; {
		case g.phase != corev1.PodPending || g.class == "" && g.node != "":
		case g.node == "":
			c.unscheduled[ofClass{label, x.reason(g.class, g.verdict)}] += n
		case class == nil:
			c.stranded[label] += n // a kubelet wants the class, too
		case nodes[g.node] != nil && !runtimeclass.Serves(nodes[g.node], class):
			c.stranded[label] += n
		}
	}
}
