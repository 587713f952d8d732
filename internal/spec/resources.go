package spec

import (
	"context"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/limits"
	"fairlead.run/internal/pod"
)

// resources are the limits of the request. The rules for devices are set by
// another step, and Update leaves them alone.
func (b *build) resources(context.Context) error {
	warnings, err := b.limit(b.spec, b.req.Container.Limits())
	b.warnings = append(b.warnings, warnings...)
	return err
}

// limit puts limits into a spec, of which the rules for devices and block I/O are
// not a part.
func (b *Builder) limit(s *specs.Spec, r *pod.Resources) (warnings []string, err error) {
	out, warnings, err := b.convertResources(r)
	if err != nil {
		return nil, err
	}
	out.Devices, out.BlockIO = s.Linux.Resources.Devices, s.Linux.Resources.BlockIO
	s.Linux.Resources = out
	return warnings, nil
}

// convertResources takes nil for "no limits".
func (b *Builder) convertResources(r *pod.Resources) (*specs.LinuxResources, []string, error) {
	h := limits.Host{Unified: b.cfg.Host.Unified, Swap: b.cfg.Host.Swap}
	out, warnings, err := limits.Convert("linux.resources.", r, h)
	if err != nil || r == nil {
		return out, warnings, err
	}
	plugin(r.Plugin, out)
	return out, warnings, nil
}

// plugin adds what NRI plugins ask for; the kernel refuses what it cannot do.
func plugin(p *pod.PluginLimits, out *specs.LinuxResources) {
	if p == nil {
		return
	}
	if out.Memory == nil {
		out.Memory = &specs.LinuxMemory{}
	}
	out.Memory.Reservation, out.Memory.KernelTCP = set(p.MemoryReservation), set(p.MemoryKernelTCP)
	out.Memory.Swappiness, out.Memory.DisableOOMKiller = p.MemorySwappiness, p.DisableOOMKiller
	if out.CPU == nil {
		out.CPU = &specs.LinuxCPU{}
	}
	out.CPU.RealtimeRuntime, out.CPU.RealtimePeriod = set(p.CPURealtimeRuntime), set(p.CPURealtimePeriod)
}

// set is a pointer to v, or nil for a zero that means "not set".
func set[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

func ptr[T any](v T) *T { return &v }
