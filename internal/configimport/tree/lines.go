package tree

import (
	"sort"

	"github.com/pelletier/go-toml/v2/unstable"
)

// lines tells in which line each key, table and element of a list of tables is
// set first, by its path. The text is well formed: it was decoded before.
func lines(data []byte) map[string]int {
	f := finder{set: map[string]int{}, count: map[string]int{}}
	f.parser.Reset(data)
	for i, c := range data {
		if c == '\n' {
			f.ends = append(f.ends, i)
		}
	}
	table := ""
	for f.parser.NextExpression() {
		e := f.parser.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = f.header(e)
		case unstable.KeyValue:
			f.keyValue(table, e)
		}
	}
	return f.set
}

type finder struct {
	parser unstable.Parser
	ends   []int          // of the lines
	set    map[string]int // the result
	count  map[string]int // elements of each list of tables so far
}

// header is the path of the table that a line in brackets begins.
func (f *finder) header(e *unstable.Node) string {
	path := ""
	for it := e.Key(); it.Next(); {
		path += step(string(it.Node().Data))
		f.note(path, it.Node())
		if e.Kind == unstable.ArrayTable && it.IsLast() {
			f.count[path]++
		}
		if n := f.count[path]; n > 0 {
			path += element(n - 1)
			f.note(path, it.Node())
		}
	}
	return path
}

func (f *finder) keyValue(table string, e *unstable.Node) {
	path := table
	for it := e.Key(); it.Next(); {
		path += step(string(it.Node().Data))
		f.note(path, it.Node())
	}
	if e.Value().Kind != unstable.InlineTable {
		return
	}
	for it := e.Value().Children(); it.Next(); {
		if it.Node().Kind == unstable.KeyValue {
			f.keyValue(path, it.Node())
		}
	}
}

func (f *finder) note(path string, n *unstable.Node) {
	if _, known := f.set[path]; !known {
		f.set[path] = 1 + sort.SearchInts(f.ends, int(n.Raw.Offset))
	}
}
