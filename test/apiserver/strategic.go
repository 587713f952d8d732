package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"
)

// mergeKeys are the fields of lists that strategic merge patches merge by. The
// other lists are replaced.
var mergeKeys = map[string]string{
	"conditions": "type", "addresses": "type", "podIPs": "ip", "hostIPs": "ip", "taints": "key", "ownerReferences": "uid",
}

// strategic applies a strategic merge patch, as far as statuses and metadata
// need it.
func strategic(text, patch []byte) ([]byte, error) {
	var had, with Object
	if err := json.Unmarshal(text, &had); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &with); err != nil {
		return nil, err
	}
	if err := mergeInto(had, with); err != nil {
		return nil, err
	}
	return json.Marshal(had)
}

func mergeInto(had, with Object) error {
	for name, value := range with {
		switch v := value.(type) {
		case nil:
			delete(had, name)
		case map[string]any:
			below, ok := had[name].(map[string]any)
			if !ok {
				below = Object{}
				had[name] = below
			}
			if err := mergeInto(below, v); err != nil {
				return err
			}
		case []any:
			list, _ := had[name].([]any)
			merged, err := mergeList(list, v, mergeKeys[name])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			had[name] = merged
		default:
			had[name] = v
		}
	}
	return nil
}

func mergeList(had, with []any, key string) ([]any, error) {
	if key == "" {
		return with, nil
	}
	out := slices.Clone(had)
	if slices.ContainsFunc(with, func(item any) bool { return directive(item) == "replace" }) {
		out = nil
	}
	for _, item := range with {
		o, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%v is no object", item)
		}
		if directive(o) == "replace" {
			continue
		}
		at := slices.IndexFunc(out, func(have any) bool { return have.(map[string]any)[key] == o[key] })
		switch {
		case directive(o) == "delete" && at >= 0:
			out = slices.Delete(out, at, at+1)
		case directive(o) == "delete":
		case at < 0:
			out = append(out, o)
		default:
			if err := mergeInto(out[at].(map[string]any), o); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func directive(item any) string {
	o, _ := item.(map[string]any)
	d, _ := o["$patch"].(string)
	return d
}
