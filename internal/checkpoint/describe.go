package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fairlead.run/internal/pod"
)

// The files of a checkpoint, as Podman, CRI-O and containerd name them.
const (
	configFile = "config.dump" // who the container is
	specFile   = "spec.dump"   // its config.json
	// RootDiff is what the container has changed in its root file system, as a
	// layer of an OCI image.
	RootDiff = "rootfs-diff.tar"
)

// description is the content of config.dump.
type description struct {
	ID              string    `json:"id"`
	Name            string    `json:"name"`
	RootfsImage     string    `json:"rootfsImage,omitempty"`
	RootfsImageRef  string    `json:"rootfsImageRef,omitempty"`
	RootfsImageName string    `json:"rootfsImageName,omitempty"`
	OCIRuntime      string    `json:"runtime,omitempty"`
	CreatedTime     time.Time `json:"createdTime"`
	CheckpointedAt  time.Time `json:"checkpointedTime"`
}

// Describe writes beside what was captured which container it was captured from,
// and more files by their names.
func (f *Folders) Describe(dir string, r *pod.Record, c *pod.Container, more map[string][]byte) error {
	config, err := json.Marshal(description{
		ID: string(c.ID), Name: c.Config.Metadata.Name,
		RootfsImage: c.Image.ID, RootfsImageRef: c.Image.Ref, RootfsImageName: c.Image.Name,
		OCIRuntime: r.Handler, CreatedTime: c.CreatedAt, CheckpointedAt: time.Now(),
	})
	if err != nil {
		return fmt.Errorf("describe the checkpoint: %w", err)
	}
	spec, err := os.ReadFile(filepath.Join(c.Bundle, "config.json"))
	if err != nil {
		return fmt.Errorf("describe the checkpoint: %w", err)
	}
	files := map[string][]byte{configFile: config, specFile: spec}
	for name, data := range more {
		files[name] = data
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600); err != nil {
			return fmt.Errorf("describe the checkpoint: %w", err)
		}
	}
	return nil
}
