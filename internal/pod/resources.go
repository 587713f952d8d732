package pod

import (
	"cmp"
	"fmt"
	"maps"
)

// Resources are cgroup limits. Zero means "not set" for every field but
// OOMScoreAdj, whose zero is a value.
type Resources struct {
	CPUPeriod       int64             `json:"cpuPeriod,omitempty"`       // us
	CPUQuota        int64             `json:"cpuQuota,omitempty"`        // us per period; -1 is unlimited
	CPUShares       int64             `json:"cpuShares,omitempty"`       // 2 to 262144, the cgroup v1 scale
	CpusetCPUs      string            `json:"cpusetCPUs,omitempty"`      // "0-3,7"
	CpusetMems      string            `json:"cpusetMems,omitempty"`      // "0,1"
	MemoryLimit     int64             `json:"memoryLimit,omitempty"`     // bytes; -1 is unlimited
	MemorySwapLimit int64             `json:"memorySwapLimit,omitempty"` // bytes, memory and swap together
	OOMScoreAdj     int64             `json:"oomScoreAdj,omitempty"`     // -1000 to 1000
	HugepageLimits  []HugepageLimit   `json:"hugepageLimits,omitempty"`
	Unified         map[string]string `json:"unified,omitempty"` // cgroup v2 file name to content; pids.max holds on v1 too
	Plugin          *PluginLimits     `json:"plugin,omitempty"`
}

// PluginLimits are those that the CRI has no field for, so that only NRI plugins
// set them. Zero means "not set", as in Resources.
type PluginLimits struct {
	MemoryReservation  int64   `json:"memoryReservation,omitempty"`  // bytes
	MemoryKernelTCP    int64   `json:"memoryKernelTCP,omitempty"`    // bytes
	MemorySwappiness   *uint64 `json:"memorySwappiness,omitempty"`   // 0 to 100
	DisableOOMKiller   *bool   `json:"disableOOMKiller,omitempty"`   // cgroup v1 only
	CPURealtimeRuntime int64   `json:"cpuRealtimeRuntime,omitempty"` // us
	CPURealtimePeriod  uint64  `json:"cpuRealtimePeriod,omitempty"`  // us
}

// HugepageLimit limits huge pages of one size.
type HugepageLimit struct {
	PageSize string `json:"pageSize"` // "2MB"
	Limit    uint64 `json:"limit"`    // bytes
}

// What the kernel's scheduler takes.
const (
	leastShares = 2
	mostShares  = 262144
	leastPeriod = 1000    // microseconds, as the next three
	mostPeriod  = 1000000 //
	leastQuota  = 1000    //
	mostQuota   = 1<<44 - 1
)

// CPUFault names the field, as the CRI has it, that the kernel's scheduler would
// refuse, and says why. It is "" if there is none. A runtime that is given such
// a value says so too late, and names a file of a cgroup instead of the field.
func (r *Resources) CPUFault() (field, why string) {
	switch {
	case r.CPUShares != 0 && (r.CPUShares < leastShares || r.CPUShares > mostShares):
		return "cpu_shares", fmt.Sprintf("is %d; it goes from %d to %d, and 0 stands for the default", r.CPUShares, leastShares, mostShares)
	case r.CPUPeriod != 0 && (r.CPUPeriod < leastPeriod || r.CPUPeriod > mostPeriod):
		return "cpu_period", fmt.Sprintf("is %d microseconds; it goes from %d to %d", r.CPUPeriod, leastPeriod, mostPeriod)
	case r.CPUQuota != 0 && r.CPUQuota != -1 && (r.CPUQuota < leastQuota || r.CPUQuota > mostQuota):
		return "cpu_quota", fmt.Sprintf("is %d microseconds; it goes from %d to %d, and -1 stands for no limit", r.CPUQuota, leastQuota, mostQuota)
	}
	return "", ""
}

// With returns r with the set fields of change laid over it. Either may be nil.
func (r *Resources) With(change *Resources) *Resources {
	if change == nil {
		return r
	}
	var out Resources
	if r != nil {
		out = *r
	}
	out.CPUPeriod = cmp.Or(change.CPUPeriod, out.CPUPeriod)
	out.CPUQuota = cmp.Or(change.CPUQuota, out.CPUQuota)
	out.CPUShares = cmp.Or(change.CPUShares, out.CPUShares)
	out.CpusetCPUs = cmp.Or(change.CpusetCPUs, out.CpusetCPUs)
	out.CpusetMems = cmp.Or(change.CpusetMems, out.CpusetMems)
	out.MemoryLimit = cmp.Or(change.MemoryLimit, out.MemoryLimit)
	out.MemorySwapLimit = cmp.Or(change.MemorySwapLimit, out.MemorySwapLimit)
	if change.MemorySwapLimit == 0 && out.MemorySwapLimit > 0 {
		out.MemorySwapLimit = max(out.MemorySwapLimit, out.MemoryLimit) // it counts memory, too
	}
	out.OOMScoreAdj = cmp.Or(change.OOMScoreAdj, out.OOMScoreAdj)
	if len(change.HugepageLimits) > 0 {
		out.HugepageLimits = change.HugepageLimits
	}
	if len(change.Unified) > 0 {
		out.Unified = maps.Clone(out.Unified)
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		maps.Copy(out.Unified, change.Unified)
	}
	out.Plugin = out.Plugin.with(change.Plugin)
	return &out
}

func (p *PluginLimits) with(change *PluginLimits) *PluginLimits {
	if p == nil || change == nil {
		return cmp.Or(change, p)
	}
	return &PluginLimits{
		MemoryReservation:  cmp.Or(change.MemoryReservation, p.MemoryReservation),
		MemoryKernelTCP:    cmp.Or(change.MemoryKernelTCP, p.MemoryKernelTCP),
		MemorySwappiness:   cmp.Or(change.MemorySwappiness, p.MemorySwappiness),
		DisableOOMKiller:   cmp.Or(change.DisableOOMKiller, p.DisableOOMKiller),
		CPURealtimeRuntime: cmp.Or(change.CPURealtimeRuntime, p.CPURealtimeRuntime),
		CPURealtimePeriod:  cmp.Or(change.CPURealtimePeriod, p.CPURealtimePeriod),
	}
}
