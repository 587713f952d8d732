package policy

import (
	"slices"
	"strings"

	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/pkg/runtimeclass"
)

// Catalog is classes, sorted out for fitting: what can be said of one class holds
// for all of its kind, and clusters have thousands of classes of a few kinds. It
// is of one moment; classes that are new since are in another.
type Catalog struct {
	runtimeclass.Classes
	kinds []kind
}

// kind is classes that differ in nothing that a handler's abilities hang on.
type kind struct {
	like    *nodev1.RuntimeClass // one of them
	level   int                  // of isolation
	classes []offer              // by name
}

// offer is a class, and what it costs.
type offer struct {
	name   string
	memory int64 // bytes of overhead
}

// NewCatalog sorts classes out.
func NewCatalog(classes runtimeclass.Classes) *Catalog {
	if classes == nil {
		classes = runtimeclass.Map{}
	}
	c := &Catalog{Classes: classes}
	at := map[string]int{}
	for _, name := range slices.Sorted(slices.Values(classes.Names())) {
		class := classes.Get(name)
		if class == nil {
			continue // gone meanwhile
		}
		key := kindOfClass(class)
		i, ok := at[key]
		if !ok {
			i = len(c.kinds)
			at[key] = i
			c.kinds = append(c.kinds, kind{like: class, level: slices.Index(levels, IsolationOf(class))})
		}
		o := offer{name: name}
		if class.Overhead != nil {
			o.memory = class.Overhead.PodFixed.Memory().Value()
		}
		c.kinds[i].classes = append(c.kinds[i].classes, o)
	}
	return c
}

func kindOfClass(c *nodev1.RuntimeClass) string {
	parts := []string{demandsOf(c), string(IsolationOf(c)), tolerationsOf(c)}
	for _, own := range ownWords {
		parts = append(parts, c.Annotations[own.annotation])
	}
	return strings.Join(parts, "\x01")
}

// tolerationsOf matters for which nodes a pod may use.
func tolerationsOf(c *nodev1.RuntimeClass) string {
	var b strings.Builder
	if c.Scheduling != nil {
		for i := range c.Scheduling.Tolerations {
			b.WriteString(c.Scheduling.Tolerations[i].String())
		}
	}
	return b.String()
}
