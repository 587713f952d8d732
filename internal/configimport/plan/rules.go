package plan

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.run/internal/configimport/tree"
)

// Rule says why keys have no counterpart.
type Rule struct {
	// Path is the names from the top, with / between; "*" is any one name, and
	// "**" at the end any number of them.
	Path string
	// Why is the reason. Empty means that nothing is lost, whatever the value.
	Why string
	// Default are values that change nothing. Without any, that is the zero
	// value of whichever type.
	Default []any
}

// Leftovers reports what nobody has taken from a tree: by the first rule that
// fits, or as unknown. Keys that have the value that they would have anyway are
// not worth a line.
func (p *Plan) Leftovers(top *tree.Node, rules []Rule, unknown string) {
	top.Unused(func(names []string, n *tree.Node) {
		for _, r := range rules {
			if !fits(strings.Split(r.Path, "/"), names) {
				continue
			}
			if r.Why != "" && !r.isDefault(n) {
				p.Note(n, Dropped, "%s", r.Why)
			}
			return
		}
		p.Note(n, Dropped, "%s", unknown)
	})
}

// fits compares names with the parts of a rule's path. Plugins' names have no
// slash, and a part that is to fit a name with one is "*".
func fits(path, names []string) bool {
	for i, part := range path {
		if part == "**" {
			return true
		}
		if i >= len(names) || (part != "*" && part != names[i]) {
			return false
		}
	}
	return len(path) == len(names)
}

func (r *Rule) isDefault(n *tree.Node) bool {
	if len(r.Default) == 0 {
		return n.IsZero()
	}
	return slices.ContainsFunc(r.Default, func(d any) bool { return fmt.Sprint(d) == fmt.Sprint(n.Value) })
}
