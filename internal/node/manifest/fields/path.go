package fields

import "strings"

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
