package policy

import (
	"fmt"
	"slices"

	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/api/v1alpha1"
)

// Where a class says itself what its handler can do, for runtimes that nodes
// tell nothing of. It counts more than what nodes say.
const (
	AnnotationSupports = "fairlead.run/supports"
	AnnotationLacks    = "fairlead.run/lacks"
)

// ownWords are the annotations, the one that denies first.
var ownWords = []struct {
	annotation string
	says       Support
}{{AnnotationLacks, Unsupported}, {AnnotationSupports, Supported}}

// Support is what is known of a feature of a class.
type Support string

// What can be known.
const (
	Supported   Support = "yes"
	Unsupported Support = "no"
	Mixed       Support = "mixed" // some nodes of the class have it, and some do not
	Unknown     Support = "unknown"
)

// unable is what a handler cannot do by what it is. A node or a class that says
// otherwise is believed.
var unable = map[v1alpha1.Isolation]map[v1alpha1.Feature]string{
	v1alpha1.IsolationSandbox: {
		HostPID:             "a sandbox has its own processes",
		HostIPC:             "a sandbox has its own System V IPC",
		BlockVolumes:        "a sandbox has no block devices of the node",
		BidirectionalMounts: "mounts that are made in a sandbox stay there",
	},
	v1alpha1.IsolationVM: {
		HostNetwork:         "a virtual machine has its own network",
		HostPID:             "a virtual machine has its own processes",
		HostIPC:             "a virtual machine has its own System V IPC",
		UserNamespaces:      "the user namespaces of the node end at a virtual machine",
		BidirectionalMounts: "mounts that are made in a virtual machine stay there",
	},
}

// Supports says whether pods of a class can have a feature, and how that is
// known. A nil fleet knows nothing. No class has what the node itself has, of
// which nothing is known.
func (f *Fleet) Supports(c *nodev1.RuntimeClass, feature v1alpha1.Feature) (Support, string) {
	if c == nil {
		return Unknown, "the pod has no class"
	}
	for _, own := range ownWords {
		list, err := listed(c.Annotations[own.annotation])
		if _, ok := list[key(feature)]; ok && err == nil {
			return own.says, "its annotation " + own.annotation + " says so"
		}
	}
	seen := f.seen(c)
	tally := seen.features[key(feature)]
	switch {
	case tally.yes > 0 && tally.yes == seen.nodes:
		return Supported, fmt.Sprintf("all of its %s have it", nodes(seen.nodes))
	case tally.no > 0 && tally.no == seen.nodes:
		return Unsupported, fmt.Sprintf("none of its %s has it", nodes(seen.nodes))
	case tally.yes > 0 || tally.no > 0:
		return Mixed, fmt.Sprintf("%d of its %s have it, and node %s does not say so", tally.yes, nodes(seen.nodes), tally.without)
	}
	for name, why := range unable[IsolationOf(c)] {
		if key(name) == key(feature) {
			return Unsupported, why
		}
	}
	if seen.nodes == 0 {
		return Unknown, "it has no node"
	}
	return Unknown, "neither its nodes nor its annotations tell"
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// Features are those of which something is known for a class, by name.
func (f *Fleet) Features(c *nodev1.RuntimeClass) []v1alpha1.Feature {
	known := map[string]v1alpha1.Feature{}
	add := func(name v1alpha1.Feature) {
		if known[key(name)] == "" {
			known[key(name)] = name
		}
	}
	for _, name := range tried {
		add(name)
	}
	for _, name := range []v1alpha1.Feature{SupplementalGroups, HostNetwork, HostPID, HostIPC, BlockVolumes, BidirectionalMounts} {
		add(name)
	}
	for _, own := range ownWords {
		list, _ := listed(c.Annotations[own.annotation])
		for _, name := range list {
			add(name)
		}
	}
	for name := range f.seen(c).features {
		add(v1alpha1.Feature(name))
	}
	var out []v1alpha1.Feature
	for _, name := range known {
		if support, _ := f.Supports(c, name); support != Unknown {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
