package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/internal/atomicfile"
)

const suffix = ".json"

// Dir is the folder of all records of one monitor.
type Dir struct {
	procs, exits, seen string
}

// Open makes the folders under dir if they are missing.
func Open(dir string) (*Dir, error) {
	d := &Dir{procs: filepath.Join(dir, "proc"), exits: filepath.Join(dir, "exits"), seen: filepath.Join(dir, "seen")}
	for _, path := range []string{d.procs, d.exits, d.seen} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("make folder for records: %w", err)
		}
	}
	return d, nil
}

func (d *Dir) proc(id string) string { return filepath.Join(d.procs, id+suffix) }

// Save replaces the record of a process.
func (d *Dir) Save(p *Process) error {
	if err := save(d.proc(p.ID), p); err != nil {
		return fmt.Errorf("record process %s: %w", p.ID, err)
	}
	return nil
}

// Remove drops the record of a process, if there is one.
func (d *Dir) Remove(id string) error {
	d.DropSeen(id)
	err := os.Remove(d.proc(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Load reads all records. Those that cannot be read are left where they are
// and named in the error, beside the ones that can.
func (d *Dir) Load() ([]*Process, error) {
	entries, err := os.ReadDir(d.procs)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	var all []*Process
	var failed []error
	for _, e := range entries {
		path := filepath.Join(d.procs, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			// Left by a writer that was killed: the file it was to replace is
			// the record.
			failed = append(failed, os.Remove(path))
			continue
		}
		p := &Process{}
		if err := load(path, p); err != nil {
			failed = append(failed, err)
			continue
		}
		all = append(all, p)
	}
	return all, errors.Join(failed...)
}

func save(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o600)
}

func load(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode record %s: %w", path, err)
	}
	return nil
}
