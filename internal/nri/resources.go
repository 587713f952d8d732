package nri

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/containerd/nri/pkg/api"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// pidsMax is the file that the limit of processes is in.
const pidsMax = "pids.max"

// toNRI is limits as plugins see them. What is not set is absent.
func toNRI(r *pod.Resources) *api.LinuxResources {
	if r == nil {
		return nil
	}
	out := &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: &api.LinuxCPU{Cpus: r.CpusetCPUs, Mems: r.CpusetMems}}
	out.Memory.Limit, out.Memory.Swap = optional(r.MemoryLimit), optional(r.MemorySwapLimit)
	out.Cpu.Quota = optional(r.CPUQuota)
	if r.CPUShares != 0 {
		out.Cpu.Shares = api.UInt64(r.CPUShares)
	}
	if r.CPUPeriod != 0 {
		out.Cpu.Period = api.UInt64(r.CPUPeriod)
	}
	for _, h := range r.HugepageLimits {
		out.HugepageLimits = append(out.HugepageLimits, &api.HugepageLimit{PageSize: h.PageSize, Limit: h.Limit})
	}
	for k, v := range r.Unified {
		if n, err := strconv.ParseInt(v, 10, 64); k == pidsMax && err == nil {
			out.Pids = &api.LinuxPids{Limit: n}
			continue
		}
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[k] = v
	}
	if p := r.Plugin; p != nil {
		out.Memory.Reservation, out.Memory.KernelTcp = optional(p.MemoryReservation), optional(p.MemoryKernelTCP)
		out.Memory.Swappiness, out.Memory.DisableOomKiller = api.UInt64(p.MemorySwappiness), api.Bool(p.DisableOOMKiller)
		out.Cpu.RealtimeRuntime = optional(p.CPURealtimeRuntime)
		if p.CPURealtimePeriod != 0 {
			out.Cpu.RealtimePeriod = api.UInt64(p.CPURealtimePeriod)
		}
	}
	return out
}

func optional(v int64) *api.OptionalInt64 {
	if v == 0 {
		return nil
	}
	return api.Int64(v)
}

// fromNRI is limits that plugins want. Classes need a configuration of block I/O
// and cache that Fairlead does not have; kernel memory has not been limited by any
// kernel since 5.16, and hierarchies cannot be left.
func fromNRI(r *api.LinuxResources) (*pod.Resources, error) {
	if r == nil {
		return nil, nil
	}
	for field, class := range map[string]*api.OptionalString{"blockio_class": r.BlockioClass, "rdt_class": r.RdtClass} {
		if class.GetValue() != "" {
			return nil, fmt.Errorf("%s %q: Fairlead knows no classes; a plugin has to set what the class stands for: %w", field, class.GetValue(), errdefs.ErrUnimplemented)
		}
	}
	m, c := r.Memory, r.Cpu
	out := &pod.Resources{
		MemoryLimit: m.GetLimit().GetValue(), MemorySwapLimit: m.GetSwap().GetValue(),
		CPUShares: int64(c.GetShares().GetValue()), CPUQuota: c.GetQuota().GetValue(), CPUPeriod: int64(c.GetPeriod().GetValue()),
		CpusetCPUs: c.GetCpus(), CpusetMems: c.GetMems(),
	}
	for _, h := range r.HugepageLimits {
		out.HugepageLimits = append(out.HugepageLimits, pod.HugepageLimit{PageSize: h.PageSize, Limit: h.Limit})
	}
	if len(r.Unified) > 0 || r.Pids != nil {
		out.Unified = map[string]string{}
		for k, v := range r.Unified {
			out.Unified[k] = v
		}
	}
	if r.Pids != nil {
		out.Unified[pidsMax] = "max"
		if n := r.Pids.Limit; n > 0 {
			out.Unified[pidsMax] = strconv.FormatInt(n, 10)
		}
	}
	p := pod.PluginLimits{
		MemoryReservation: m.GetReservation().GetValue(), MemoryKernelTCP: m.GetKernelTcp().GetValue(),
		MemorySwappiness: m.GetSwappiness().Get(), DisableOOMKiller: m.GetDisableOomKiller().Get(),
		CPURealtimeRuntime: c.GetRealtimeRuntime().GetValue(), CPURealtimePeriod: c.GetRealtimePeriod().GetValue(),
	}
	if p != (pod.PluginLimits{}) {
		out.Plugin = &p
	}
	return out, nil
}

// sets says whether limits set anything.
func sets(r *pod.Resources) bool {
	return r != nil && (r.CPUPeriod|r.CPUQuota|r.CPUShares|r.MemoryLimit|r.MemorySwapLimit|r.OOMScoreAdj != 0 ||
		slices.Contains([]bool{r.CpusetCPUs != "", r.CpusetMems != "", len(r.HugepageLimits) > 0, len(r.Unified) > 0, r.Plugin != nil}, true))
}
