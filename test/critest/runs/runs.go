// Package runs keeps what became of the specs of cri-tools' validation suite in
// its runs: one run for each suite, runtime, handler and cgroup version. It runs
// nothing.
package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"fairlead.run/test/e2e/results"
)

// What is tested.
const (
	Fairlead   = "fairlead"
	Containerd = "containerd"
)

// ErrOther says that a run is of other programs than the one that it would be added to.
var ErrOther = errors.New("what is there ran other programs")

// Run is one run of the suite.
type Run struct {
	Suite      string       `json:"suite"` // the release of cri-tools
	Runtime    string       `json:"runtime"`
	Handler    string       `json:"handler"`
	Cgroup     string       `json:"cgroup"`      // v1 or v2
	NRITimeout string       `json:"nri_timeout"` // 0s: the runtime's default
	Programs   []string     `json:"programs"`    // the runtime and its handler, with their versions
	Kernel     string       `json:"kernel"`
	Specs      results.List `json:"specs"`
}

// String names a run.
func (r Run) String() string {
	return fmt.Sprintf("%s, %s, cgroup %s, critest %s", r.Runtime, r.Handler, r.Cgroup, r.Suite)
}

// File is the name of the run's file.
func (r Run) File() string { return fmt.Sprintf("%s-%s-%s.json", r.Runtime, r.Handler, r.Cgroup) }

// Write writes the run as JSON.
func (r Run) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Add writes the run together with what earlier runs of the same programs have
// written there. What ran again has its later result.
func (r Run) Add(path string) error {
	earlier, err := Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.Write(path)
	case err != nil:
		return err
	case r.Suite != earlier.Suite || r.Kernel != earlier.Kernel || r.NRITimeout != earlier.NRITimeout || !slices.Equal(r.Programs, earlier.Programs):
		return fmt.Errorf("add the results to %s: %w: %s", path, ErrOther, strings.Join(earlier.Programs, ", "))
	}
	r.Specs = earlier.Specs.With(r.Specs)
	return r.Write(path)
}

// Read reads what Write wrote.
func Read(path string) (Run, error) {
	var r Run
	err := readJSON(path, &r)
	return r, err
}

// Causes are why specs have not passed: by the name of the spec, and by the runs
// that a cause is good for. These are named by what they have in common, such as
// "v1" or "containerd crun"; "" is all. What a runtime cannot do it cannot do below
// its shim either, and "shim" is of that alone. A run fits one of them at most.
type Causes map[string]map[string]string

// Of is the cause of a spec in a run; "" if nobody has named one.
func (c Causes) Of(spec string, r Run) string {
	words := []string{r.Runtime, r.Handler, r.Cgroup}
	if below, is := strings.CutSuffix(r.Handler, "-shim"); is {
		words = append(words, below, "shim")
	}
	for where, cause := range c[spec] {
		applies := true
		for word := range strings.FieldsSeq(where) {
			applies = applies && slices.Contains(words, word)
		}
		if applies {
			return cause
		}
	}
	return ""
}

// ReadCauses reads causes from JSON.
func ReadCauses(path string) (Causes, error) {
	var causes Causes
	err := readJSON(path, &causes)
	return causes, err
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
