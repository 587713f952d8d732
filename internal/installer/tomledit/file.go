package tomledit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"fairlead.run/internal/errdefs"
)

// File is a parsed file.
type File struct {
	name string
	data []byte
	keys map[string]any
	// lines are the expressions of the file in their order.
	lines []expression
}

// expression is a header of a table, or a key with its value.
type expression struct {
	path   []string // from the top of the file
	table  bool     // a header
	start  int      // of the first key's line
	end    int      // behind the last line, its end included
	value  int      // where the value begins; 0 for a header
	kind   unstable.Kind
	inside bool // below a header
}

// Parse reads a file; name is for messages.
func Parse(name string, data []byte) (*File, error) {
	f := &File{name: name, data: data}
	if err := toml.Unmarshal(data, &f.keys); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, column := at.Position()
			return nil, fmt.Errorf("%s:%d:%d: %s: %w", name, row, column, strings.TrimPrefix(err.Error(), "toml: "), errdefs.ErrInvalidArgument)
		}
		return nil, fmt.Errorf("%s: %s: %w", name, strings.TrimPrefix(err.Error(), "toml: "), errdefs.ErrInvalidArgument)
	}
	f.scan()
	return f, nil
}

// scan finds the expressions; the text is well formed.
func (f *File) scan() {
	var p unstable.Parser
	p.Reset(f.data)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		var keys []string
		first, last := 0, 0
		for it := e.Key(); it.Next(); {
			n := it.Node()
			if len(keys) == 0 {
				first = int(n.Raw.Offset)
			}
			keys = append(keys, string(n.Data))
			last = int(n.Raw.Offset + n.Raw.Length)
		}
		x := expression{start: lineStart(f.data, first), inside: len(table) > 0}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keys
			x.path, x.table, x.end = keys, true, lineEnd(f.data, last)
		default:
			x.path = append(slices.Clone(table), keys...)
			x.kind = e.Value().Kind
			x.value = last + bytes.IndexByte(f.data[last:], '=') + 1
			for f.data[x.value] == ' ' || f.data[x.value] == '\t' {
				x.value++
			}
			x.end = lineEnd(f.data, int(e.Raw.Offset+e.Raw.Length))
		}
		f.lines = append(f.lines, x)
	}
}

func lineStart(data []byte, at int) int { return bytes.LastIndexByte(data[:at], '\n') + 1 }

func lineEnd(data []byte, at int) int {
	if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(data)
}

// Keys are the decoded content.
func (f *File) Keys() map[string]any { return f.keys }

// Get is the value at a path, or nil.
func (f *File) Get(path ...string) any {
	var v any = f.keys
	for _, p := range path {
		t, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		if v, ok = t[p]; !ok {
			return nil
		}
	}
	return v
}

// Table is the table at a path, or nil.
func (f *File) Table(path ...string) map[string]any {
	t, _ := f.Get(path...).(map[string]any)
	return t
}

// Line is the first line that says something at a path or below, or 0.
func (f *File) Line(path ...string) int {
	for _, x := range f.lines {
		if under(x.path, path) {
			return 1 + bytes.Count(f.data[:x.start], []byte("\n"))
		}
	}
	return 0
}

func under(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}
