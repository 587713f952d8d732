package fields

import (
	"reflect"
	"strings"
)

// Hint proposes the field of object that the unknown one at path was probably
// meant to be, or is empty.
func Hint(object any, path string) string {
	t := reflect.TypeOf(object)
	all := Steps(path)
	for i, step := range all {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		if t.Kind() != reflect.Struct {
			return ""
		}
		names := Names(t)
		if next, ok := names[step]; ok {
			t = next
			continue
		}
		if i < len(all)-1 {
			return ""
		}
		candidates := make([]string, 0, len(names))
		for name := range names {
			candidates = append(candidates, name)
		}
		if best := Nearest(step, candidates); best != "" {
			return "; did you mean " + best + "?"
		}
	}
	return ""
}

func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// Names are the JSON names of a struct's fields and their types.
func Names(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			for n, inner := range Names(element(f.Type)) {
				out[n] = inner
			}
		case name != "":
			out[name] = f.Type
		}
	}
	return out
}

// Nearest is the candidate that is most like word, or empty where none is like
// it at all.
func Nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return "" // nobody's slip of the finger
	}
	best, most := "", len(word)/3+1
	for _, c := range candidates {
		d := distance(strings.ToLower(word), strings.ToLower(c))
		if d < most || (d == most && (best == "" || c < best)) {
			best, most = c, d
		}
	}
	return best
}

// distance is the number of letters to add, drop or change between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
