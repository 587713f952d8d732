package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/runtime/oci/owner"
)

// brokenBundle is a config.json that is none.
type brokenBundle struct {
	path string
	err  error
}

func (e *brokenBundle) Error() string {
	return fmt.Sprintf("read the container's specification %s: %v", e.path, e.err)
}

func (e *brokenBundle) Unwrap() error { return e.err }

// readAs reads that part of the config.json of a bundle which T names. Most of it
// is the seccomp filter, which takes a millisecond to take apart.
func readAs[T any](bundle string) (*T, error) {
	path := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the container's specification: %w", err)
	}
	s := new(T)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, &brokenBundle{path, err}
	}
	return s, nil
}

// running is what another process in the container has of it.
type running struct {
	Process *specs.Process `json:"process"` // nil if it has none
	Linux   owner.Mappings `json:"linux"`
}

// readProcess is the process of a bundle, or nil if it has none.
func readProcess(bundle string) (*specs.Process, error) {
	s, err := readAs[running](bundle)
	if err != nil {
		return nil, err
	}
	return s.Process, nil
}

// traces is what a bundle says about what its container has on the host, and
// may leave there.
type traces struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		CgroupsPath string                 `json:"cgroupsPath"`
		IntelRdt    json.RawMessage        `json:"intelRdt"`
		MountLabel  string                 `json:"mountLabel"`
		Namespaces  []specs.LinuxNamespace `json:"namespaces"`
		owner.Mappings
	} `json:"linux"`
	Process struct {
		User specs.User `json:"user"`
	} `json:"process"`
	Hooks struct {
		Poststop []json.RawMessage `json:"poststop"`
	} `json:"hooks"`
}
