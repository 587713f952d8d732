package tree

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Node is a table, a list of tables or a value, and where it was set.
type Node struct {
	File string
	Line int    // from 1; 0 is unknown
	Key  string // as one would write it in the file, from its top

	Value any              // of a value: a string, int64, float64, bool, []any or a time
	Table map[string]*Node // of a table
	List  []*Node          // of a list of tables

	Size int // of the file in bytes; of its top only

	used bool
}

// IsTable says whether there may be keys below.
func (n *Node) IsTable() bool { return n != nil && n.Table != nil }

// At is what is below n by the names, or nil.
func (n *Node) At(names ...string) *Node {
	for _, name := range names {
		if n == nil {
			return nil
		}
		n = n.Table[name]
	}
	return n
}

// Tables are the tables of a table, by name.
func (n *Node) Tables() map[string]*Node {
	out := map[string]*Node{}
	for _, name := range n.Names() {
		if below := n.Table[name]; below.IsTable() {
			out[name] = below
		}
	}
	return out
}

// IsZero says whether a value is the zero value of its type.
func (n *Node) IsZero() bool {
	list, isList := n.Value.([]any)
	return n.Value == nil || (isList && len(list) == 0) || (!isList && reflect.ValueOf(n.Value).IsZero())
}

// Names are those of a table, in order.
func (n *Node) Names() []string {
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.Table))
}

// Use says that n and all below it have been made use of.
func (n *Node) Use() {
	if n == nil {
		return
	}
	n.used = true
	for _, below := range n.Table {
		below.Use()
	}
	for _, below := range n.List {
		below.Use()
	}
}

// Put places a node below n, and makes the tables on the way there. What is
// there already stays, unless over is set.
func (n *Node) Put(below *Node, over bool, names ...string) {
	for _, name := range names[:len(names)-1] {
		next := n.Table[name]
		if !next.IsTable() {
			next = &Node{File: below.File, Line: below.Line, Key: below.Key, Table: map[string]*Node{}}
			n.Table[name] = next
		}
		n = next
	}
	last := names[len(names)-1]
	if _, there := n.Table[last]; !there || over {
		n.Table[last] = below
	}
}

// Merge puts what from has over what n has: tables are merged, anything else is
// replaced.
func (n *Node) Merge(from *Node) {
	for name, theirs := range from.Table {
		ours := n.Table[name]
		if ours.IsTable() && theirs.IsTable() {
			ours.Merge(theirs)
			continue
		}
		n.Table[name] = theirs
	}
}

// Unused visits the values that nobody has made use of, in the order of their
// names, each with the names from the top to it. An empty table is none.
func (n *Node) Unused(visit func(names []string, n *Node)) { n.unused(nil, visit) }

func (n *Node) unused(names []string, visit func([]string, *Node)) {
	if n.used {
		return
	}
	for _, name := range n.Names() {
		n.Table[name].unused(append(slices.Clip(names), name), visit)
	}
	for _, below := range n.List {
		below.unused(names, visit)
	}
	if n.Table == nil && n.List == nil {
		visit(names, n)
	}
}

// bare is a part of a key that needs no quotes.
var bare = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Quote is one part of a key as one would write it.
func Quote(part string) string {
	if bare.MatchString(part) {
		return part
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(part) + `"`
}

// Plain is n without where it is from, as a decoder has it.
func (n *Node) Plain() any {
	switch {
	case n.Table != nil:
		out := make(map[string]any, len(n.Table))
		for name, below := range n.Table {
			out[name] = below.Plain()
		}
		return out
	case n.List != nil:
		out := make([]any, len(n.List))
		for i, below := range n.List {
			out[i] = below.Plain()
		}
		return out
	}
	return n.Value
}

// Text is the string that n has, or "".
func (n *Node) Text() string {
	if n == nil {
		return ""
	}
	s, _ := n.Value.(string)
	return s
}
