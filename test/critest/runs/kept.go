package runs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"

	"fairlead.run/test/e2e/results"
)

// kept is a run as it is kept beside the page: what became of each spec, and
// nothing of how long that took.
type kept struct {
	Suite      string                   `json:"suite"`
	Runtime    string                   `json:"runtime"`
	Handler    string                   `json:"handler"`
	Cgroup     string                   `json:"cgroup"`
	NRITimeout string                   `json:"nri_timeout"`
	Programs   []string                 `json:"programs"`
	Kernel     string                   `json:"kernel"`
	Specs      map[string]results.State `json:"specs"`
}

// ReadKept reads what WriteKept wrote; nothing if there is no such file.
func ReadKept(path string) ([]Run, error) {
	var all []kept
	if err := readJSON(path, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []Run
	for _, k := range all {
		r := Run{
			Suite: k.Suite, Runtime: k.Runtime, Handler: k.Handler, Cgroup: k.Cgroup,
			NRITimeout: k.NRITimeout, Programs: k.Programs, Kernel: k.Kernel,
		}
		for _, name := range slices.Sorted(maps.Keys(k.Specs)) {
			r.Specs = append(r.Specs, results.Spec{Name: name, State: k.Specs[name]})
		}
		out = append(out, r)
	}
	return out, nil
}

// WriteKept writes runs for ReadKept.
func WriteKept(path string, all []Run) error {
	out := []kept{}
	for _, r := range all {
		k := kept{
			Suite: r.Suite, Runtime: r.Runtime, Handler: r.Handler, Cgroup: r.Cgroup,
			NRITimeout: r.NRITimeout, Programs: r.Programs, Kernel: r.Kernel, Specs: map[string]results.State{},
		}
		for _, s := range r.Specs {
			k.Specs[s.Name] = s.State
		}
		out = append(out, k)
	}
	data, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// With adds a run to others. It takes the place of an earlier one of the same
// suite, runtime, handler and cgroup version.
func With(all []Run, r Run) []Run {
	same := func(o Run) bool { return o.String() == r.String() }
	return append(slices.DeleteFunc(slices.Clone(all), same), r)
}
