package census

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/pkg/runtimeclass"
)

// stance is how a node stands to a class whose labels it has.
type stance uint8

// The stances, and their names in labels.
const (
	open     stance = iota // it has the handler and takes pods of the class
	untold                 // it takes pods, and tells nothing of handlers
	closed                 // a taint that is not tolerated, or a cordon
	failing                // the handler does not work there
	lacking                // it tells of handlers, and this is none of them
	nStances               // how many there are
)

var stances = [nStances]string{"open", "untold", "closed", "failing", "lacking"}

// standing is the number of nodes of each stance.
type standing [nStances]int

// supporting is the nodes that have the class, whether they take pods or not.
func (s standing) supporting() int { return s[open] + s[untold] + s[closed] }

// taking is the nodes that pods of the class can go to.
func (s standing) taking() int { return s[open] + s[untold] }

// kind is nodes that no class can tell apart. Clusters have many nodes and few
// kinds of them.
type kind struct {
	node     *corev1.Node // one of them
	count    int
	handlers int // the matcher's set of handlers that they tell of
	taints   int // and that of their taints
}

// sets are nodes that are alike in something, one of each.
type sets struct {
	of    map[string]int
	nodes []*corev1.Node
}

func (s *sets) add(look string, n *corev1.Node) int {
	i, ok := s.of[look]
	if !ok {
		i = len(s.nodes)
		s.of[look] = i
		s.nodes = append(s.nodes, n)
	}
	return i
}

// matcher finds the nodes of classes. A class with thousands of others demands
// handlers, labels and tolerations in ever new combinations; each of the three is
// worked out once.
type matcher struct {
	kinds            []kind
	handlers, taints sets

	served    map[string][]stance // by handler, for each set of handlers
	tolerated map[string][]bool   // by tolerations, for each set of taints
	known     map[string]standing // by all that a class demands
	key       []byte
}

func newMatcher(nodes []*corev1.Node, classes []*nodev1.RuntimeClass) *matcher {
	m := &matcher{
		handlers: sets{of: map[string]int{}}, taints: sets{of: map[string]int{}},
		served: map[string][]stance{}, tolerated: map[string][]bool{}, known: map[string]standing{},
	}
	selected := map[string]bool{}
	for _, c := range classes {
		if c.Scheduling != nil {
			for key := range c.Scheduling.NodeSelector {
				selected[key] = true
			}
		}
	}
	keys, alike := slices.Sorted(maps.Keys(selected)), map[string]int{}
	for _, n := range nodes {
		handlers, taints := handlerLook(n), taintLook(n)
		look := handlers + "\n" + taints + "\n" + labelLook(n, keys)
		i, ok := alike[look]
		if !ok {
			i = len(m.kinds)
			alike[look] = i
			m.kinds = append(m.kinds, kind{node: n, handlers: m.handlers.add(handlers, n), taints: m.taints.add(taints, n)})
		}
		m.kinds[i].count++
	}
	return m
}

// The looks of a node are what classes go by, as text.

func handlerLook(n *corev1.Node) string {
	var parts []string
	for key, value := range n.Labels {
		if strings.HasPrefix(key, runtimeclass.LabelHandlerPrefix) {
			parts = append(parts, key+"="+value)
		}
	}
	for i := range n.Status.RuntimeHandlers {
		parts = append(parts, " "+n.Status.RuntimeHandlers[i].Name)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func taintLook(n *corev1.Node) string {
	parts := []string{strconv.FormatBool(n.Spec.Unschedulable)}
	for i := range n.Spec.Taints {
		parts = append(parts, n.Spec.Taints[i].ToString())
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func labelLook(n *corev1.Node, keys []string) string {
	var parts []string
	for _, key := range keys {
		if value, ok := n.Labels[key]; ok {
			parts = append(parts, key+"="+value)
		}
	}
	return strings.Join(parts, ",")
}

// pauseEvery is after how many classes others get the processor: reviews must not
// wait for a census, on one core either.
const pauseEvery = 16

// of is the nodes of a class. Classes with the same demands have the same.
func (m *matcher) of(c *nodev1.RuntimeClass) standing {
	scheduling := c.Scheduling
	if scheduling == nil {
		scheduling = &nodev1.Scheduling{}
	}
	m.key = appendTolerations(m.key[:0], scheduling.Tolerations)
	tolerations := len(m.key)
	m.key = appendDemands(m.key, c.Handler, scheduling.NodeSelector)
	if s, ok := m.known[string(m.key)]; ok {
		return s
	}
	takes, ok := m.tolerated[string(m.key[:tolerations])]
	if !ok {
		takes = m.tolerate(scheduling.Tolerations)
		m.tolerated[string(m.key[:tolerations])] = takes
	}
	found := m.count(m.serve(c.Handler), takes, scheduling.NodeSelector)
	m.known[string(m.key)] = found
	if len(m.known)%pauseEvery == 0 {
		runtime.Gosched()
	}
	return found
}

func appendTolerations(key []byte, all []corev1.Toleration) []byte {
	for i := range all {
		t := &all[i]
		for _, part := range []string{t.Key, string(t.Operator), t.Value, string(t.Effect)} {
			key = append(append(key, part...), 0)
		}
	}
	return append(key, '\n')
}

func appendDemands(key []byte, handler string, selector map[string]string) []byte {
	key = append(append(key, handler...), 0)
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		key = append(append(append(append(key, k...), '='), selector[k]...), 0)
	}
	return key
}

// serve is how nodes stand to a handler, taints and labels apart.
func (m *matcher) serve(handler string) []stance {
	if out, ok := m.served[handler]; ok {
		return out
	}
	out, class := make([]stance, len(m.handlers.nodes)), &nodev1.RuntimeClass{Handler: handler}
	for i, n := range m.handlers.nodes {
		says := saysOf(n, handler)
		switch serves := runtimeclass.Serves(n, class); {
		case serves && says == handlerUntold:
			out[i] = untold
		case serves:
			out[i] = open
		case says == handlerFails:
			out[i] = failing
		default:
			out[i] = lacking
		}
	}
	m.served[handler] = out
	return out
}

// tolerate says which nodes take pods with these tolerations.
func (m *matcher) tolerate(tolerations []corev1.Toleration) []bool {
	class := &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{Tolerations: tolerations}}
	out := make([]bool, len(m.taints.nodes))
	for i, n := range m.taints.nodes {
		// An error is that no pod can have this class, and so there is no node for it.
		found, err := runtimeclass.Match(runtimeclass.Query{Class: class, Nodes: []*corev1.Node{n}})
		out[i] = err == nil && found[0].OK()
	}
	return out
}

func (m *matcher) count(serves []stance, takes []bool, selector map[string]string) standing {
	var out standing
	for _, k := range m.kinds {
		stance := serves[k.handlers]
		switch {
		case !has(k.node.Labels, selector):
			continue
		case !takes[k.taints] && (stance == open || stance == untold):
			stance = closed
		}
		out[stance] += k.count
	}
	return out
}

func has(labels, selector map[string]string) bool {
	for key, want := range selector {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// What a node says of a handler.
type saying uint8

const (
	handlerWorks    saying = iota // Fairlead has tried it there
	handlerListed                 // the kubelet lists it, and nobody has tried it
	handlerFails                  // Fairlead has tried it, and it does not work
	handlerUnlisted               // Fairlead says that it works, and the kubelet does not list it
	handlerUntold                 // the node tells nothing of this handler
	nSayings                      // how many there are
)

var sayings = [nSayings]string{"works", "listed", "fails", "unlisted", "untold"}

func saysOf(n *corev1.Node, handler string) saying {
	verdict, tried := n.Labels[runtimeclass.LabelHandlerPrefix+handler]
	listed := slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool { return h.Name == handler })
	switch {
	case tried && verdict != "true":
		return handlerFails
	case tried && !listed && len(n.Status.RuntimeHandlers) > 0:
		return handlerUnlisted
	case tried:
		return handlerWorks
	case listed:
		return handlerListed
	}
	return handlerUntold
}

// handlersOf is the names of all that a node says something of. The default one
// has none.
func handlersOf(n *corev1.Node) []string {
	var out []string
	for key := range n.Labels {
		if name, ok := strings.CutPrefix(key, runtimeclass.LabelHandlerPrefix); ok {
			out = append(out, name)
		}
	}
	for i := range n.Status.RuntimeHandlers {
		out = append(out, n.Status.RuntimeHandlers[i].Name)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return name == "" })
}

// silent says that a node tells nothing of any handler: an older kubelet.
func silent(n *corev1.Node) bool {
	return len(n.Status.RuntimeHandlers) == 0 && len(handlersOf(n)) == 0
}
