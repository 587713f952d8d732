package criserver

import (
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

func (d *decoder) resources(field string, r *cri.LinuxContainerResources) *pod.Resources {
	if r == nil {
		return nil
	}
	if v := r.GetOomScoreAdj(); v < -1000 || v > 1000 {
		d.fail(field+".oom_score_adj", "is %d; it goes from -1000 to 1000", v)
	}
	for name, v := range map[string]int64{
		"memory_limit_in_bytes":      r.GetMemoryLimitInBytes(),
		"memory_swap_limit_in_bytes": r.GetMemorySwapLimitInBytes(),
	} {
		if v < -1 {
			d.fail(field+"."+name, "is %d; below zero only -1, unlimited, has a meaning", v)
		}
	}
	out := &pod.Resources{
		CPUPeriod:       r.GetCpuPeriod(),
		CPUQuota:        r.GetCpuQuota(),
		CPUShares:       r.GetCpuShares(),
		CpusetCPUs:      d.text(field+".cpuset_cpus", r.GetCpusetCpus()),
		CpusetMems:      d.text(field+".cpuset_mems", r.GetCpusetMems()),
		MemoryLimit:     r.GetMemoryLimitInBytes(),
		MemorySwapLimit: r.GetMemorySwapLimitInBytes(),
		OOMScoreAdj:     r.GetOomScoreAdj(),
		Unified:         d.textMap(field+".unified", r.GetUnified()),
	}
	if name, why := out.CPUFault(); name != "" {
		d.fail(field+"."+name, "%s", why)
	}
	for i, h := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits, pod.HugepageLimit{
			PageSize: d.required(fmt.Sprintf("%s.hugepage_limits[%d].page_size", field, i), h.GetPageSize()),
			Limit:    h.GetLimit(),
		})
	}
	return out
}

func encodeResources(r *pod.Resources) *cri.LinuxContainerResources {
	if r == nil {
		return nil
	}
	out := &cri.LinuxContainerResources{
		CpuPeriod:              r.CPUPeriod,
		CpuQuota:               r.CPUQuota,
		CpuShares:              r.CPUShares,
		MemoryLimitInBytes:     r.MemoryLimit,
		OomScoreAdj:            r.OOMScoreAdj,
		CpusetCpus:             r.CpusetCPUs,
		CpusetMems:             r.CpusetMems,
		Unified:                r.Unified,
		MemorySwapLimitInBytes: r.MemorySwapLimit,
	}
	for _, h := range r.HugepageLimits {
		out.HugepageLimits = append(out.HugepageLimits, &cri.HugepageLimit{PageSize: h.PageSize, Limit: h.Limit})
	}
	return out
}
