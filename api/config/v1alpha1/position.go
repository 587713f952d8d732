package v1alpha1

import (
	"reflect"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// positions tells in which line of a file each key and each table is set first.
// The file has been decoded before, so it is well formed; of one that is not,
// the keys before the mistake are told.
func positions(data []byte) map[string]int {
	set := map[string]int{}
	visitKeys(data, func(key []string, at spot, _ *unstable.Node) {
		name := strings.Join(key, ".")
		if _, known := set[name]; !known {
			set[name] = at.Line
		}
	})
	return set
}

// unquotedDuration finds the first duration that is written without quotes. The
// decoder refuses it as well, but does not say where it is.
func unquotedDuration(data []byte) (key []string, at spot) {
	visitKeys(data, func(k []string, p spot, value *unstable.Node) {
		if key == nil && value != nil && value.Kind != unstable.String && typeOf(k) == reflect.TypeFor[Duration]() {
			key, at = k, p
		}
	})
	return key, at
}

// visitKeys calls visit for every step of every key in a file, those of inline
// tables too. value is nil where the step names a table.
func visitKeys(data []byte, visit func(key []string, at spot, value *unstable.Node)) {
	v := &keyVisitor{visit: visit}
	v.parser.Reset(data)
	for i, c := range data {
		if c == '\n' {
			v.ends = append(v.ends, i)
		}
	}
	var table []string
	for v.parser.NextExpression() {
		e := v.parser.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = v.steps(nil, e, nil)
		case unstable.KeyValue:
			v.keyValue(table, e)
		}
	}
}

// spot is a place in a file, both counted from 1.
type spot struct{ Line, Column int }

type keyVisitor struct {
	parser unstable.Parser
	ends   []int // of the lines; the parser's own search for a line starts at the top each time
	visit  func([]string, spot, *unstable.Node)
}

func (v *keyVisitor) keyValue(table []string, e *unstable.Node) {
	key := v.steps(table, e, e.Value())
	if e.Value().Kind != unstable.InlineTable {
		return
	}
	for it := e.Value().Children(); it.Next(); {
		if it.Node().Kind == unstable.KeyValue {
			v.keyValue(key, it.Node())
		}
	}
}

// steps visits each step of a dotted key below table and returns the whole of it.
func (v *keyVisitor) steps(table []string, e, value *unstable.Node) []string {
	key := append([]string(nil), table...)
	for it := e.Key(); it.Next(); {
		key = append(key, string(it.Node().Data))
		var leaf *unstable.Node
		if it.IsLast() {
			leaf = value
		}
		v.visit(append([]string(nil), key...), v.spot(int(it.Node().Raw.Offset)), leaf)
	}
	return key
}

func (v *keyVisitor) spot(offset int) spot {
	before := sort.SearchInts(v.ends, offset)
	start := 0
	if before > 0 {
		start = v.ends[before-1] + 1
	}
	return spot{Line: before + 1, Column: offset - start + 1}
}
