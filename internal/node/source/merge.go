package source

import (
	"slices"
	"sync"

	"fairlead.run/internal/node/manifest"
)

// Merger makes one set of those of several sources. Of two sources that define the
// same object, the one that was named first keeps it. A pod may refer to what
// another source holds.
type Merger struct {
	set   func(Set)
	kinds []string

	mu   sync.Mutex // also for calls of set, so that the last one is the newest
	sets []Set
}

// NewMerger makes a Merger of sources of these kinds, of which no two are the same.
// It calls set with the whole each time that one of them has changed, and expects
// it back soon. It is of use for a single source, too: it is what finds references
// that lead nowhere.
func NewMerger(set func(Set), kinds ...string) *Merger {
	return &Merger{set: set, kinds: kinds, sets: make([]Set, len(kinds))}
}

// From is what the source of a kind is to call.
func (m *Merger) From(kind string) func(Set) {
	i := slices.Index(m.kinds, kind)
	return func(s Set) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sets[i] = s
		m.set(m.all())
	}
}

func (m *Merger) all() Set {
	var out Set
	var names []string
	var read []*manifest.Objects
	for i, s := range m.sets {
		out.Problems = append(out.Problems, s.Problems...)
		if s.Objects == nil {
			out.Unread = append(out.Unread, m.kinds[i])
			continue
		}
		names, read = append(names, m.kinds[i]), append(read, from(m.kinds[i], s.Objects))
	}
	if len(read) == 0 {
		return out
	}
	objects, problems := manifest.MergeAll(names, read)
	out.Objects = objects
	out.Problems = append(out.Problems, problems...)
	if len(out.Unread) == 0 { // else what is missing may be there
		out.Problems = append(out.Problems, objects.References()...)
	}
	return out
}

// from marks what has pods of a source with its kind.
func from(kind string, o *manifest.Objects) *manifest.Objects {
	marked := *o
	marked.Pods = make([]*manifest.Pod, len(o.Pods))
	for i, p := range o.Pods {
		pod := *p
		pod.From = kind
		marked.Pods[i] = &pod
	}
	marked.Workloads = make([]*manifest.Workload, len(o.Workloads))
	for i, w := range o.Workloads {
		workload := *w
		workload.From = kind
		marked.Workloads[i] = &workload
	}
	return &marked
}
