package pod

import (
	"maps"
	"slices"
	"strings"
)

// LimitsTogether are the limits of what runs several containers at once: all that
// each of them may use, and overhead, which is what running them costs and may be
// nil. A limit that one of them does not have the whole does not have either: it
// is -1.
func LimitsTogether(containers []*Container, overhead *Resources) *Resources {
	sum := &Resources{CPUPeriod: defaultPeriod}
	for _, c := range containers {
		l := c.Limits()
		if l == nil {
			l = &Resources{}
		}
		swap := l.MemorySwapLimit
		if swap == 0 {
			swap = l.MemoryLimit // see spec: it cannot swap
		}
		sum.CPUShares += orDefault(l.CPUShares, defaultShares)
		sum.CPUQuota = addLimit(sum.CPUQuota, quotaOf(l))
		sum.MemoryLimit = addLimit(sum.MemoryLimit, l.MemoryLimit)
		sum.MemorySwapLimit = addLimit(sum.MemorySwapLimit, swap)
	}
	if overhead != nil {
		sum.CPUShares += max(overhead.CPUShares, 0)
		sum.CPUQuota = addCost(sum.CPUQuota, quotaOf(overhead))
		sum.MemoryLimit = addCost(sum.MemoryLimit, overhead.MemoryLimit)
		sum.MemorySwapLimit = addCost(sum.MemorySwapLimit, overhead.MemoryLimit)
	}
	sum.CPUShares = min(max(sum.CPUShares, leastShares), mostShares)
	return sum
}

// What the kernel has without a limit.
const (
	defaultPeriod = 100_000 // us
	defaultShares = 1024
)

func orDefault(v, otherwise int64) int64 {
	if v <= 0 {
		return otherwise
	}
	return v
}

// quotaOf is in us for each defaultPeriod.
func quotaOf(r *Resources) int64 {
	return r.CPUQuota * defaultPeriod / orDefault(r.CPUPeriod, defaultPeriod)
}

// addLimit takes zero and less for no limit, but in sum, which begins with zero.
func addLimit(sum, v int64) int64 {
	if sum < 0 || v <= 0 {
		return -1
	}
	return sum + v
}

// addCost adds what is no limit by itself.
func addCost(sum, v int64) int64 {
	if sum < 0 {
		return -1
	}
	return sum + max(v, 0)
}

// NotTogether names the field, as the CRI has it, that two sets of limits differ
// in and that cannot be added up. It is "" if there is none.
func NotTogether(a, b *Resources) string {
	if a == nil {
		a = &Resources{}
	}
	if b == nil {
		b = &Resources{}
	}
	isNone := func(h HugepageLimit) bool { return h.Limit == 0 }
	huge := func(r *Resources) []HugepageLimit { return slices.DeleteFunc(slices.Clone(r.HugepageLimits), isNone) }
	switch {
	case a.CpusetCPUs != b.CpusetCPUs:
		return "cpuset_cpus"
	case a.CpusetMems != b.CpusetMems:
		return "cpuset_mems"
	case !slices.Equal(huge(a), huge(b)):
		return "hugepage_limits"
	case !maps.Equal(a.Unified, b.Unified):
		return "unified"
	}
	return ""
}

// UnfitForSandbox names the field, as the CRI has it, of what a sandbox with a
// kernel of its own cannot do, and says why. It is "" if there is none.
func (c *Config) UnfitForSandbox() (field, why string) {
	n := c.Security.Namespaces
	switch {
	case n.PID == NamespaceNode:
		return "linux.security_context.namespace_options.pid", "is NODE, and it cannot show the node's processes"
	case n.IPC == NamespaceNode:
		return "linux.security_context.namespace_options.ipc", "is NODE, and it cannot show the node's System V IPC"
	case len(c.Sysctls) > 0:
		return "linux.sysctls", "has " + strings.Join(slices.Sorted(maps.Keys(c.Sysctls)), ", ") + ", and it has none that could be set"
	}
	return "", ""
}
