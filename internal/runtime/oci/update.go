package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
)

// Update gives a running container the limits that its bundle says now.
func (h *Handler) Update(ctx context.Context, id string, b pod.Bundle) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if err := h.update(ctx, id, b); err != nil {
		return fmt.Errorf("update container %s with handler %s: %w", id, h.def.Name, err)
	}
	return nil
}

func (h *Handler) update(ctx context.Context, id string, b pod.Bundle) error {
	s, err := readSpec(b.Path)
	if err != nil {
		return err
	}
	data, err := json.Marshal(limits(s))
	if err != nil {
		return fmt.Errorf("encode the resources: %w", err)
	}
	f, err := os.CreateTemp(h.folder(id), "resources-*.json")
	if err != nil {
		return fmt.Errorf("write the resources: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write the resources: %w", err)
	}
	_, err = h.run(ctx, "update", "--resources", f.Name(), id)
	return err
}

// limits are the resources of a bundle that can change while the container
// runs. Its devices cannot.
func limits(s *specs.Spec) *specs.LinuxResources {
	if s.Linux == nil || s.Linux.Resources == nil {
		return &specs.LinuxResources{}
	}
	out := *s.Linux.Resources
	out.Devices = nil
	return &out
}
