package taskapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
)

// Stage is how far a container has come.
type Stage string

// The stages of a container. One that is Creating may or may not be there.
const (
	Booting  Stage = "booting" // its shim is being started
	Creating Stage = "creating"
	Running  Stage = "running"
)

// Record is what is kept of a container that a shim runs.
type Record struct {
	// Shim is the program that was started for the pod.
	Shim string `json:"shim"`
	// Sandbox is the container that the shim was started for: the first of the pod.
	Sandbox string `json:"sandbox"`
	Bundle  string `json:"bundle"`
	Stage   Stage  `json:"stage"`
	Endpoint
	// PID is the container's first process on the host; see Endpoint.Start.
	PID int `json:"pid,omitempty"`
}

// recordName is the file in a container's folder below the root.
const recordName = "task.json"

// Folder is where a container's record is, and whatever else is kept of it.
func Folder(root, id string) string { return filepath.Join(root, id) }

// ReadRecord reads the record of a container. It says errdefs.ErrNotFound if
// there is none.
func ReadRecord(root, id string) (Record, error) {
	path := filepath.Join(Folder(root, id), recordName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("no shim has container %s: %w", id, errdefs.ErrNotFound)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read which shim has container %s: %w", id, err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("read which shim has container %s: %s: %w: %w", id, path, errdefs.ErrInternal, err)
	}
	return r, nil
}

// Write writes the record of a container, whose folder has to exist.
func (r Record) Write(root, id string) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.Write(filepath.Join(Folder(root, id), recordName), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write which shim has container %s: %w", id, err)
	}
	return nil
}
