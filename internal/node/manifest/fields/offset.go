package fields

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// level is an object or list that a walk through JSON is within.
type level struct {
	list bool
	at   int    // in a list: the place of the last value, -1 before the first
	key  string // in an object: the last key
	open bool   // in an object: the key's value comes next
}

// At is the path of the last value that is over, or a list or object that
// is open, at the offset. Decoders tell offsets; people want paths such as
// "spec.containers[0].image". It is empty for the whole of the JSON.
func At(text []byte, offset int64) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var stack []level
	found := ""
	for {
		token, err := decoder.Token()
		if err != nil {
			return found
		}
		if end, isDelim := token.(json.Delim); isDelim && (end == '}' || end == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 {
			if in := &stack[len(stack)-1]; !in.list && !in.open {
				in.key, in.open = token.(string)
				continue
			}
		}
		if decoder.InputOffset() > offset {
			return found
		}
		if len(stack) > 0 {
			stack[len(stack)-1].step()
		}
		found = pathOf(stack)
		if open, isDelim := token.(json.Delim); isDelim {
			stack = append(stack, level{list: open == '[', at: -1})
		}
	}
}

func (l *level) step() {
	l.at++
	l.open = false
}

func pathOf(stack []level) string {
	var path strings.Builder
	for _, l := range stack {
		switch {
		case l.list:
			fmt.Fprintf(&path, "[%d]", l.at)
		case path.Len() > 0:
			path.WriteString("." + l.key)
		default:
			path.WriteString(l.key)
		}
	}
	return path.String()
}
