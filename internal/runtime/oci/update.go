package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Update gives a running container the limits that its bundle says now. One in a
// sandbox has none of its own; see Together.
func (h *Handler) Update(ctx context.Context, id string, b pod.Bundle) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if h.sandboxed() {
		return fmt.Errorf("update container %s with handler %s: it has no limits of its own in its sandbox: %w", id, h.def.Name, errdefs.ErrUnimplemented)
	}
	if err := h.update(ctx, id, b); err != nil {
		return fmt.Errorf("update container %s with handler %s: %w", id, h.def.Name, err)
	}
	return nil
}

func (h *Handler) update(ctx context.Context, id string, b pod.Bundle) error {
	s, err := readAs[specs.Spec](b.Path)
	if err != nil {
		return err
	}
	res := limits(s)
	lift := h.runtime() == "crun" && (res.CPU == nil || res.CPU.Quota == nil)
	if !lift {
		res.CPU = withQuota(res.CPU)
	}
	data, err := json.Marshal(res)
	file := filepath.Join(h.folder(id), "resources.json") // nobody else updates this container
	defer os.Remove(file)
	if err := errors.Join(err, os.WriteFile(file, data, 0o600)); err != nil {
		return fmt.Errorf("write the resources: %w", err)
	}
	if _, err := h.run(ctx, "update", "--resources", file, id); err != nil || !lift {
		return err
	}
	// crun 1.8 writes "no limit" as a number that the kernel does not take.
	g, err := h.group(id)
	if err != nil || g == nil {
		return err
	}
	return g.LiftQuota()
}

// withQuota says that there is no limit if there is none: an earlier update may
// have set one. A bundle, which is for a new cgroup, need not say it.
func withQuota(c *specs.LinuxCPU) *specs.LinuxCPU {
	out := *cmp.Or(c, &specs.LinuxCPU{})
	out.Quota = cmp.Or(out.Quota, new(int64(-1)))
	return &out
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
