package journal

import (
	"slices"
	"time"
)

// Owned are all handlers that were written for the type. Those of a release that is still
// being staged are not: somebody else may have written handlers of these names meanwhile.
func (r *Record) Owned() []string {
	var all []string
	if r.Now != nil {
		all = append(all, r.Now.Handlers...)
	}
	if r.Next != nil && !r.Next.Since.IsZero() {
		all = append(all, r.Next.Handlers...)
	}
	return all
}

// Given are handlers that only the change in flight has brought.
func (r *Record) Given() []string {
	if r.Next == nil || r.Next.Since.IsZero() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Next.Handlers), func(h string) bool { return r.Now != nil && slices.Contains(r.Now.Handlers, h) })
}

// Handlers are all that the type has had and that pods may be on, sorted.
func (r *Record) Handlers() []string {
	all := r.Owned()
	for _, old := range r.Old {
		if !old.Since.IsZero() { // else it was never served
			all = append(all, old.Handlers...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Retire keeps a release for the pods that are on it.
func (r *Record) Retire(gone *Release) {
	old := *gone
	old.Until = time.Now()
	r.Old = append(r.Old, old)
}
