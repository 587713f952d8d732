package osc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Removed is the annotation of an object with the handlers that were taken out of it, with
// commas. Machines keep the tables of those until an entry says that they are to go, and
// who writes the object anew knows nothing of that; annotations of others stay.
const Removed = "operator.fairlead.run/removed"

// handler is that of an entry about a table of one; "" is none.
func handler(e Entry) string {
	words, _ := e["path"].([]any)
	if len(words) <= len(runtimes) || !slices.Equal(words[:len(runtimes)], list(runtimes)) {
		return ""
	}
	return fmt.Sprint(words[len(runtimes)])
}

// handlers are those of entries.
func handlers(all []any) map[string]bool {
	out := map[string]bool{}
	for _, one := range all {
		if e, ok := one.(map[string]any); ok && handler(e) != "" {
			out[handler(e)] = true
		}
	}
	return out
}

// goes says that an entry takes a whole table of a handler away.
func goes(e Entry) bool {
	words, _ := e["path"].([]any)
	return e["op"] == "remove" && handler(e) != "" && len(words) == len(runtimes)+1
}

// removed are the handlers that the annotation names.
func removed(object Entry) map[string]bool {
	meta, _ := object["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	text, _ := notes[Removed].(string)
	out := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		out[name] = name != ""
	}
	delete(out, "")
	return out
}

// note has the annotation say that some tables are gone, and that others are there:
// entries that take those away go.
func note(object Entry, gone, there []any) {
	all, back := removed(object), handlers(there)
	was := maps.Clone(all)
	for name := range handlers(gone) {
		all[name] = true
	}
	for name := range back {
		delete(all, name)
	}
	if maps.Equal(was, all) {
		return
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		meta = Entry{}
		object["metadata"] = meta
	}
	notes, ok := meta["annotations"].(map[string]any)
	if !ok {
		notes = Entry{}
		meta["annotations"] = notes
	}
	if notes[Removed] = strings.Join(slices.Sorted(maps.Keys(all)), ","); len(all) == 0 {
		delete(notes, Removed)
	}
	spec, _ := object["spec"].(map[string]any)
	containerd := containerdOf(spec)
	if had, ok := containerd["plugins"].([]any); ok {
		containerd["plugins"] = slices.DeleteFunc(slices.Clone(had), func(one any) bool {
			e, _ := one.(map[string]any)
			return goes(e) && back[handler(e)] && was[handler(e)]
		})
	}
}

// Sweep has machines take away the tables of handlers that were taken out of an object, as
// far as it says nothing else of them.
func Sweep(object Entry) {
	spec, _ := object["spec"].(map[string]any)
	containerd := containerdOf(spec)
	if containerd == nil {
		return
	}
	all, _ := containerd["plugins"].([]any)
	has := handlers(all)
	for _, name := range slices.Sorted(maps.Keys(removed(object))) {
		if !has[name] {
			all = append(all, Entry{"op": "remove", "path": list(append(slices.Clone(runtimes), name))})
			containerd["plugins"] = all
		}
	}
}
