package policy

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
)

// AnnotationFeaturesPrefix and the name of a handler make the annotation of a
// node that lists, with commas, what Fairlead saw that handler do there. A
// feature that it does not list, though Fairlead tries it, the handler has not.
const AnnotationFeaturesPrefix = "features.fairlead.run/"

// tried are the features that Fairlead tries a handler for.
var tried = []v1alpha1.Feature{UserNamespaces, "seccomp", RecursiveReadOnlyMounts, "devices", "resize", "stats", "checkpoints", "apparmor", "selinux"}

// Fleet is the nodes of a cluster, and what their handlers can do. It is safe
// for use by several goroutines.
type Fleet struct {
	all []*corev1.Node

	mu    sync.Mutex
	known map[string]*sight // by the demands of a class
}

// sight is what was seen of a class.
type sight struct {
	nodes    int
	features map[string]tally
}

// tally counts the nodes that have a feature, and those that say that they have
// it not. The others say nothing.
type tally struct {
	yes, no int
	without string // the first node that has it not, or does not say
}

// NewFleet looks at nodes. They are read only, and must not change: a Fleet
// remembers.
func NewFleet(nodes []*corev1.Node) *Fleet {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return &Fleet{all: sorted, known: map[string]*sight{}}
}

// Nodes is how many nodes a class has: those with its handler and the labels
// that it selects. Taints, cordons and full nodes pass, and do not count.
func (f *Fleet) Nodes(c *nodev1.RuntimeClass) int { return f.seen(c).nodes }

// empty says that nothing is known of any node.
func (f *Fleet) empty() bool { return f == nil || len(f.all) == 0 }

// seen is worked out once for all classes with the same demands: clusters have
// thousands of classes, and few handlers.
func (f *Fleet) seen(c *nodev1.RuntimeClass) *sight {
	if f.empty() {
		return &sight{}
	}
	demands := demandsOf(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.known[demands]; s != nil {
		return s
	}
	if len(f.known) >= mostKnown {
		clear(f.known)
	}
	s := f.look(c)
	f.known[demands] = s
	return s
}

// mostKnown bounds what a Fleet remembers: classes come and go while nodes stay.
const mostKnown = 10_000

func demandsOf(c *nodev1.RuntimeClass) string {
	parts := []string{c.Handler}
	if c.Scheduling != nil {
		for k, v := range c.Scheduling.NodeSelector {
			parts = append(parts, k+"="+v)
		}
	}
	slices.Sort(parts[1:])
	return strings.Join(parts, "\x00")
}

func (f *Fleet) look(c *nodev1.RuntimeClass) *sight {
	s := &sight{features: map[string]tally{}}
	var own []*corev1.Node
	for _, n := range f.all {
		if runtimeclass.Serves(n, c) {
			own = append(own, n)
		}
	}
	s.nodes = len(own)
	told := make([]map[string]bool, len(own))
	for i, n := range own {
		told[i] = featuresOf(n, c.Handler)
		for feature := range told[i] {
			s.features[feature] = tally{}
		}
	}
	for feature, t := range s.features {
		for i, n := range own {
			has, says := told[i][feature]
			switch {
			case has:
				t.yes++
				continue
			case says:
				t.no++
			}
			if t.without == "" {
				t.without = n.Name
			}
		}
		s.features[feature] = t
	}
	return s
}

// featuresOf is what a node says of a handler. What it says nothing of is
// missing.
func featuresOf(n *corev1.Node, handler string) map[string]bool {
	out := map[string]bool{}
	if f := n.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil {
		out[key(SupplementalGroups)] = *f.SupplementalGroupsPolicy
	}
	for _, h := range n.Status.RuntimeHandlers {
		if h.Name != handler || h.Features == nil {
			continue
		}
		out[key(UserNamespaces)] = h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
		out[key(RecursiveReadOnlyMounts)] = h.Features.RecursiveReadOnlyMounts != nil && *h.Features.RecursiveReadOnlyMounts
	}
	text, ok := n.Annotations[AnnotationFeaturesPrefix+handler]
	list, err := listed(text)
	if !ok || err != nil {
		return out
	}
	for _, feature := range tried {
		_, has := list[key(feature)]
		out[key(feature)] = has
	}
	for k := range list {
		out[k] = true
	}
	return out
}
