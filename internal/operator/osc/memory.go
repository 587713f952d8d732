package osc

import "encoding/json"

// Memory is the entries of a runtime as an object had them last. Who writes the object
// anew does not know them, and of the release before the one of now nobody else does.
type Memory struct {
	Files   []any `json:"files"`
	Plugins []any `json:"plugins"`
}

// Of is the entries that a runtime has in an object.
func (w Entries) Of(object Entry) Memory {
	spec, _ := object["spec"].(map[string]any)
	return Memory{Files: those(spec, "files", w.file), Plugins: those(containerdOf(spec), "plugins", w.table)}
}

// Recall puts entries that an object had into it again, as far as it has none of their
// kind: then somebody has written it anew. Put makes of them what belongs there now, which
// may be nothing: it has to know what machines have.
func Recall(object Entry, with Entries, had Memory) {
	spec, _ := object["spec"].(map[string]any)
	now := with.Of(object)
	if spec == nil {
		return
	}
	if len(now.Files) == 0 && len(had.Files) > 0 {
		all, _ := spec["files"].([]any)
		spec["files"] = append(all, had.Files...)
	}
	cri, _ := spec["criConfig"].(map[string]any)
	if cri != nil && len(now.Plugins) == 0 && len(had.Plugins) > 0 {
		containerd := containerdOf(spec)
		if containerd == nil {
			containerd = Entry{}
			cri["containerd"] = containerd
		}
		all, _ := containerd["plugins"].([]any)
		containerd["plugins"] = append(all, had.Plugins...)
	}
}

// containerdOf is what a spec says of containerd; nil if that is nothing.
func containerdOf(spec Entry) Entry {
	cri, _ := spec["criConfig"].(map[string]any)
	containerd, _ := cri["containerd"].(map[string]any)
	return containerd
}

// those are the entries of a list that fit.
func those(in Entry, key string, fits func(Entry) bool) (out []any) {
	all, _ := in[key].([]any)
	for _, one := range all {
		if e, ok := one.(map[string]any); ok && fits(e) {
			out = append(out, e)
		}
	}
	return out
}

// state is what is stored of the objects of a pool, by their names.
type state struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Configs    map[string]Memory `json:"configs"`
}

const stateVersion, stateKind = "fairlead.run/v1alpha1", "RuntimeState"

// Encode is what of objects is to be stored, with its keys in order.
func Encode(of map[string]Memory) ([]byte, error) {
	text, err := json.Marshal(state{stateVersion, stateKind, of})
	if err != nil {
		return nil, err
	}
	var sorted map[string]any // as an API server gives it back
	if err := json.Unmarshal(text, &sorted); err != nil {
		return nil, err
	}
	return json.Marshal(sorted)
}

// Decode reads what was stored. What somebody else has put there says nothing: without it
// the next release is brought all the same.
func Decode(text []byte) map[string]Memory {
	var s state
	if json.Unmarshal(text, &s) != nil || s.APIVersion != stateVersion || s.Kind != stateKind {
		return nil
	}
	return s.Configs
}
