package tomledit

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2/unstable"

	"fairlead.run/internal/errdefs"
)

// CutTables takes out what is at a path and below. It is for what was ours and has
// lost the comments around it, because some other tool has rewritten the file.
// What is written within an inline table is refused.
func (f *File) CutTables(path ...string) ([]byte, error) {
	if f.Get(path...) == nil {
		return f.data, nil
	}
	out := bytes.Clone(f.data)
	found := false
	for i := len(f.lines) - 1; i >= 0; i-- {
		x := f.lines[i]
		if under(x.path, path) {
			found = true
			out = splice(out, x.start, x.end, nil)
		}
	}
	again, err := Parse(f.name, out)
	if err != nil {
		return nil, err
	}
	if !found || again.Get(path...) != nil {
		return nil, fmt.Errorf("edit %s: %s is within an inline table, which cannot be taken apart; write it as a table of its own: %w", f.name, Path(path...), errdefs.ErrPrecondition)
	}
	return out, nil
}

// Closed says which table above a path cannot be added to from the end of the
// file, because it is written inline or is none.
func (f *File) Closed(path ...string) error {
	for _, x := range f.lines {
		if !x.table && len(x.path) < len(path) && under(path, x.path) {
			return fmt.Errorf("%s:%d: %s is written on one line, so that nothing can be added to it; write it as a table: %w",
				f.name, 1+bytes.Count(f.data[:x.start], []byte("\n")), Path(x.path...), errdefs.ErrPrecondition)
		}
	}
	for n := 1; n < len(path); n++ {
		if at := path[:n]; f.Get(at...) != nil && f.Table(at...) == nil {
			return fmt.Errorf("%s:%d: %s is no table, so that nothing can be added to it: %w", f.name, f.Line(at...), Path(at...), errdefs.ErrPrecondition)
		}
	}
	return nil
}

// AddElement puts a string at the beginning of a list at the top of the file, and
// makes the list if there is none.
func (f *File) AddElement(key, element string) ([]byte, error) {
	text := Quote(element)
	for _, x := range f.lines {
		if x.inside || x.table || len(x.path) != 1 || x.path[0] != key {
			continue
		}
		if x.kind != unstable.Array {
			return nil, fmt.Errorf("edit %s: %s is no list: %w", f.name, key, errdefs.ErrPrecondition)
		}
		if list, _ := f.Get(key).([]any); len(list) > 0 {
			text += ", "
		}
		return splice(f.data, x.value+1, x.value+1, []byte(text)), nil
	}
	if f.Get(key) != nil {
		return nil, fmt.Errorf("edit %s: %s is a table and no list: %w", f.name, key, errdefs.ErrPrecondition)
	}
	at := len(f.data)
	if len(f.lines) > 0 {
		at = f.lines[0].start
	}
	if at > 0 && f.data[at-1] != '\n' {
		return nil, fmt.Errorf("edit %s: its only line is a comment without an end; end that line: %w", f.name, errdefs.ErrPrecondition)
	}
	return splice(f.data, at, at, []byte(key+" = ["+text+"]"+mine+"\n")), nil
}

// mine marks a list that was not there before.
const mine = " # fairlead: import"

// CutElement takes the string out again. A list that AddElement made goes too, if
// nobody has added to it.
func (f *File) CutElement(key, element string) []byte {
	text := Quote(element)
	for _, x := range f.lines {
		if x.inside || x.table || len(x.path) != 1 || x.path[0] != key {
			continue
		}
		line := string(f.data[x.start:x.end])
		if strings.TrimRight(line, "\r\n") == key+" = ["+text+"]"+mine {
			return splice(f.data, x.start, x.end, nil)
		}
		at := bytes.Index(f.data[x.value:x.end], []byte(text))
		if at < 0 {
			continue
		}
		from, to := x.value+at, x.value+at+len(text)
		switch rest := f.data[to:x.end]; {
		case bytes.HasPrefix(rest, []byte(", ")):
			to += 2
		case bytes.HasPrefix(rest, []byte(",")):
			to++
		}
		return splice(f.data, from, to, nil)
	}
	return f.data
}

// Path is a key for messages and headers, quoted where it has to be.
func Path(path ...string) string {
	var b strings.Builder
	for i, p := range path {
		if i > 0 {
			b.WriteByte('.')
		}
		if p != "" && strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" {
			b.WriteString(p)
			continue
		}
		b.WriteString(Quote(p))
	}
	return b.String()
}

// Quote writes a string, as every version of TOML reads it: Go's own quoting has escapes
// that only the newest knows.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
