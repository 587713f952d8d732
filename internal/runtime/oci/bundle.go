package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
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

// readSpec reads the config.json of a bundle.
func readSpec(bundle string) (*specs.Spec, error) {
	path := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the container's specification: %w", err)
	}
	var s specs.Spec
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, &brokenBundle{path, err}
	}
	return &s, nil
}

// readProcess is the process of a bundle, or nil if it has none.
func readProcess(bundle string) (*specs.Process, error) {
	s, err := readSpec(bundle)
	if err != nil {
		return nil, err
	}
	return s.Process, nil
}

// cgroupsPath is linux.cgroupsPath of a bundle, or "".
func cgroupsPath(bundle string) (string, error) {
	s, err := readSpec(bundle)
	if err != nil || s.Linux == nil {
		return "", err
	}
	return s.Linux.CgroupsPath, nil
}
