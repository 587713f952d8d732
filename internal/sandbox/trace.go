package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairlead.run/internal/pod"
)

// Traces tells of the pods that have a folder here and are not known.
func (d *Driver) Traces(_ context.Context, known func(id string) bool) ([]pod.Trace, error) {
	entries, err := os.ReadDir(filepath.Join(d.cfg.StateDir, podsFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for pods without a record: %w", err)
	}
	var out []pod.Trace
	for _, e := range entries {
		if !pod.IsID(e.Name()) || known(e.Name()) {
			continue
		}
		t := pod.Trace{Pod: pod.ID(e.Name())}
		if info, err := e.Info(); err == nil {
			t.Made = info.ModTime()
		}
		out = append(out, t)
	}
	return out, nil
}
