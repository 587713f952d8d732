package main

import (
	"maps"
	"slices"
	"strings"

	"fairlead.run/test/e2e/results"
)

// causes say why a spec does not pass: by the name of a node, or under everywhere on
// all nodes that have none of their own.
type causes map[string]string

const everywhere = "everywhere"

// of is what a reader is told of a spec, the nodes on which it has failed and that lack
// a cause, and the causes that explain nothing.
func (c causes) of(all map[string]kept, there []string, spec string) (told string, without, needless []string) {
	used := map[string][]string{} // the titles of the nodes, by the key of the cause
	for _, name := range there {
		state := all[name].Specs.State(spec)
		key := everywhere
		if c[name] != "" {
			key = name
		}
		switch {
		case state == results.Passed || state == results.NotRun:
		case c[key] != "":
			used[key] = append(used[key], title(name))
		case state == results.Failed || all[name].Specs.Why(spec) == "":
			without = append(without, title(name)+": "+spec)
		}
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		switch {
		case len(used[key]) == 0:
			needless = append(needless, key+": "+spec)
		case len(used) == 1:
			parts = append(parts, c[key])
		default:
			parts = append(parts, strings.Join(used[key], ", ")+": "+c[key])
		}
	}
	return strings.Join(parts, " "), without, needless
}
