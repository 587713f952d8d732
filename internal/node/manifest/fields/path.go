package fields

import (
	"fmt"
	"strings"
)

// Steps cuts a path at its dots and brackets. A key within brackets may hold
// dots.
func Steps(path string) []string {
	var out []string
	for path != "" {
		switch {
		case path[0] == '.':
			path = path[1:]
		case path[0] == '[':
			key, rest, _ := strings.Cut(path[1:], "]")
			out, path = append(out, key), rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			out, path = append(out, path[:end]), path[end:]
		}
	}
	return out
}

// Join is the path of a field below another; path is empty at the top.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Below is as Join, of a key of a map, which may hold dots.
func Below(path, key string) string {
	if strings.ContainsAny(key, ".[") {
		return path + "[" + key + "]"
	}
	return Join(path, key)
}

// IsZero says whether a value of a tree asks for nothing: false, 0, an empty text, no entries.
func IsZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case fmt.Stringer: // json.Number
		return v.String() == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
