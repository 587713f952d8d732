package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Update changes the resources of a running container. What is not set in res
// stays as it is.
func (h *Handler) Update(ctx context.Context, id string, res *pod.Resources) error {
	if res == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if err := h.update(ctx, id, res); err != nil {
		return fmt.Errorf("update container %s with handler %s: %w", id, h.def.Name, err)
	}
	return nil
}

func (h *Handler) update(ctx context.Context, id string, res *pod.Resources) error {
	wanted, err := resources(res, unified(cgroupRoot))
	if err != nil {
		return err
	}
	data, err := json.Marshal(wanted)
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
	_, err = h.tool.run(ctx, "update", "--resources", f.Name(), id)
	return err
}

// resources translates limits. v2 says that the host has cgroup v2.
func resources(r *pod.Resources, v2 bool) (*specs.LinuxResources, error) {
	out := &specs.LinuxResources{}
	cpu := &specs.LinuxCPU{
		Quota: notZero(r.CPUQuota),
		Cpus:  r.CpusetCPUs,
		Mems:  r.CpusetMems,
	}
	if r.CPUPeriod > 0 {
		period := uint64(r.CPUPeriod)
		cpu.Period = &period
	}
	if r.CPUShares > 0 {
		shares := uint64(r.CPUShares)
		cpu.Shares = &shares
	}
	if *cpu != (specs.LinuxCPU{}) {
		out.CPU = cpu
	}
	memory := &specs.LinuxMemory{Limit: notZero(r.MemoryLimit), Swap: notZero(r.MemorySwapLimit)}
	if *memory != (specs.LinuxMemory{}) {
		out.Memory = memory
	}
	for _, l := range r.HugepageLimits {
		out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: l.PageSize, Limit: l.Limit})
	}
	return out, unifiedResources(out, r.Unified, v2)
}

// unifiedResources puts the unified map into out. On cgroup v1 only the limit of
// processes has a counterpart.
func unifiedResources(out *specs.LinuxResources, unified map[string]string, v2 bool) error {
	if v2 {
		out.Unified = unified
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(unified)) {
		if key != "pids.max" {
			return fmt.Errorf("linux.unified[%q] is a file of cgroup v2, and this host has cgroup v1: %w", key, errdefs.ErrUnimplemented)
		}
		limit := int64(-1)
		if value := unified[key]; value != "max" {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("linux.unified[%q] is %q, which is neither a number nor \"max\": %w", key, value, errdefs.ErrInvalidArgument)
			}
			limit = n
		}
		out.Pids = &specs.LinuxPids{Limit: &limit}
	}
	return nil
}

// notZero is nil for the value that means "not set".
func notZero(v int64) *int64 {
	if v == 0 {
		return nil
	}
	return &v
}
