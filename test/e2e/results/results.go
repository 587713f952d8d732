// Package results reads what Ginkgo reports of upstream's specs, and keeps of it
// what a page needs. It runs nothing.
package results

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// State is what became of a spec.
type State string

// The states of a spec.
const (
	Passed  State = "passed"
	Failed  State = "failed"
	Skipped State = "skipped" // by itself: something that it needs is missing
	NotRun  State = "-"       // in no list: there is no result
)

// Spec is one that was chosen, and what became of it.
type Spec struct {
	Name    string  `json:"name"`
	State   State   `json:"state"`
	Seconds float64 `json:"seconds"`
	Why     string  `json:"why,omitempty"`   // the message of a spec that has not passed
	Setup   bool    `json:"setup,omitempty"` // not a spec, but what prepares all of a run or ends it
}

// Kubernetes is the release that the specs come from; test/e2e/programs/go.mod
// has it, too.
const Kubernetes = "v1.36.3"

// List is in the order of the names.
type List []Spec

// cut is what Ginkgo says of specs that ran when the time for all of them was over.
const cut = "A suite timeout occurred"

// interrupted is the state of specs that ran when Ginkgo was told to end, or when
// another spec ended all of them.
const interrupted = "interrupted"

// report is as much of Ginkgo's JSON report as is needed here.
type report struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// Read reads a file that ginkgo --json-report wrote. Specs that were not chosen
// are left out: Ginkgo calls these skipped as well, but without a reason.
func Read(path string) (List, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the report of the specs: %w", err)
	}
	var reports []report
	if err := json.Unmarshal(data, &reports); err != nil {
		return nil, fmt.Errorf("read the report of the specs in %s: %w", path, err)
	}
	var all List
	for _, r := range reports {
		for _, s := range r.SpecReports {
			spec := Spec{
				Name:    strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "),
				State:   Failed, // panicked, timed out, aborted and the like are all that
				Seconds: s.RunTime.Seconds(), Why: s.Failure.Message,
			}
			switch s.State {
			case "passed":
				spec.State = Passed
			case "skipped", "pending":
				spec.State = Skipped
			}
			if s.State == interrupted || spec.Why == cut {
				continue // it had not ended, so it has no result
			}
			// Nodes that prepare all specs have no text of their own.
			setup := s.LeafNodeType != "It"
			if setup && spec.State != Failed || spec.State == Skipped && spec.Why == "" {
				continue
			}
			if setup {
				spec.Name, spec.Setup = s.LeafNodeType, true
			}
			all = append(all, spec)
		}
	}
	all.sort()
	return all, nil
}

func (l List) sort() {
	slices.SortStableFunc(l, func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })
}

// With is the list after one more run: what ran again has its later result. What
// prepared the earlier runs is no longer of interest.
func (l List) With(later List) List {
	again := map[string]bool{}
	for _, s := range later {
		again[s.Name] = true
	}
	all := slices.Clone(later)
	for _, s := range l {
		if !s.Setup && !again[s.Name] {
			all = append(all, s)
		}
	}
	all.sort()
	return all
}

// Write writes the list as JSON.
func (l List) Write(path string) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Add writes the list as JSON, together with what earlier runs have written there.
func (l List) Add(path string) error {
	earlier, err := Load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return earlier.With(l).Write(path)
}

// Load reads what Write wrote.
func Load(path string) (List, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var l List
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("read the results in %s: %w", path, err)
	}
	return l, nil
}

// Count is how many specs are in each state.
func (l List) Count() map[State]int {
	n := map[State]int{}
	for _, s := range l {
		n[s.State]++
	}
	return n
}

// State is what became of a spec.
func (l List) State(name string) State {
	if s := l.find(name); s != nil {
		return s.State
	}
	return NotRun
}

// Why is the message of a spec that has not passed.
func (l List) Why(name string) string {
	if s := l.find(name); s != nil {
		return s.Why
	}
	return ""
}

func (l List) find(name string) *Spec {
	for i := range l {
		if l[i].Name == name {
			return &l[i]
		}
	}
	return nil
}
