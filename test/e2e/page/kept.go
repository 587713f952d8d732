package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"fairlead.run/test/e2e/results"
)

// kept is what became of the specs on one node.
type kept struct {
	Note  string
	Specs results.List
}

// onDisk is that as it is kept beside the page, with nothing of how long it took.
type onDisk struct {
	Note  string                   `json:"note"`
	Specs map[string]results.State `json:"specs"`
	Why   map[string]string        `json:"why,omitempty"` // of those that skipped themselves
}

// readKept reads what writeKept wrote; nothing if there is no such file.
func readKept(path string) (map[string]kept, error) {
	var all map[string]onDisk
	if err := readJSON(path, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]kept{}
	for name, d := range all {
		k := kept{Note: d.Note}
		for _, spec := range slices.Sorted(maps.Keys(d.Specs)) {
			k.Specs = append(k.Specs, results.Spec{Name: spec, State: d.Specs[spec], Why: d.Why[spec]})
		}
		out[name] = k
	}
	return out, nil
}

func writeKept(path string, all map[string]kept) error {
	out := map[string]onDisk{}
	for name, k := range all {
		d := onDisk{Note: k.Note, Specs: map[string]results.State{}, Why: map[string]string{}}
		for _, s := range k.Specs {
			d.Specs[s.Name] = s.State
			if s.State == results.Skipped {
				d.Why[s.Name] = s.Why
			}
		}
		out[name] = d
	}
	data, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func readJSON(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
