// Package merge makes the strategic merge patch that turns one object into
// another, as far as statuses need it, without a schema: the lists that are merged
// are few, and are named.
package merge

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Lists says how lists are patched, by the name of their field. One that is not named is
// replaced, which API servers do with lists that have no key.
type Lists struct {
	// Keyed are merged by the field named: what others have put in stays.
	Keyed map[string]string
	// Owned have a key in the API server, and are replaced all the same.
	Owned map[string]bool
}

// Object is any value as JSON has it.
func Object(of any) (map[string]any, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", of, err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("decode a %T: %w", of, err)
	}
	return out, nil
}

// Diff is what turns was into now; it is empty if they are equal.
func Diff(was, now map[string]any, lists Lists) map[string]any {
	out := map[string]any{}
	for name := range was {
		if _, ok := now[name]; !ok && lists.Keyed[name] == "" {
			out[name] = nil
		}
	}
	for name, value := range now {
		had, ok := was[name]
		if ok && reflect.DeepEqual(had, value) {
			continue
		}
		out[name] = lists.change(name, had, value)
	}
	for name, key := range lists.Keyed {
		before, _ := was[name].([]any)
		after, _ := now[name].([]any)
		delete(out, name)
		if changed := diffList(before, after, key); len(changed) > 0 {
			out[name] = changed
		}
	}
	return out
}

func (l Lists) change(name string, had, value any) any {
	switch v := value.(type) {
	case map[string]any:
		if before, ok := had.(map[string]any); ok {
			return Diff(before, v, Lists{})
		}
	case []any:
		if l.Owned[name] {
			return append([]any{map[string]any{"$patch": "replace"}}, v...)
		}
	}
	return value
}

func diffList(was, now []any, key string) []any {
	before, after := byKey(was, key), byKey(now, key)
	var out []any
	for _, item := range now {
		o, _ := item.(map[string]any)
		id := o[key]
		had, ok := before[id]
		if !ok {
			out = append(out, o)
			continue
		}
		if d := Diff(had, o, Lists{}); len(d) > 0 {
			d[key] = id
			out = append(out, d)
		}
	}
	for _, item := range was {
		o, _ := item.(map[string]any)
		if _, ok := after[o[key]]; !ok {
			out = append(out, map[string]any{"$patch": "delete", key: o[key]})
		}
	}
	return out
}

func byKey(list []any, key string) map[any]map[string]any {
	out := map[any]map[string]any{}
	for _, item := range list {
		if o, ok := item.(map[string]any); ok {
			out[o[key]] = o
		}
	}
	return out
}
