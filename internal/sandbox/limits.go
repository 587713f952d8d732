package sandbox

import (
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/limits"
	"fairlead.run/internal/pod"
)

// Where the limits of a pod are in the request that makes it, and in one that
// changes them.
const (
	atCreation = "linux."
	atUpdate   = ""
)

// limitsOf are a pod's limits: those of its containers together and of what running
// them costs. What cannot be is refused by field, with at before it.
func limitsOf(at string, c *pod.Config) (*cgroups.Resources, []string, error) {
	if err := fitsPod(at, c); err != nil {
		return nil, nil, err
	}
	// Whether the kernel accounts swap the pod's own cgroup shows; see canHave.
	h := limits.Host{Unified: cgroups.IsCgroup2UnifiedMode(), Swap: true}
	checked, warnings, err := limits.Convert(at+"resources.", c.Resources, h)
	if err == nil {
		_, _, err = limits.Convert(at+"overhead.", c.Overhead, h)
	}
	if err != nil {
		return nil, nil, err
	}
	out := together(c.Resources, c.Overhead)
	if checked.CPU != nil {
		out.CpusetCpus, out.CpusetMems = checked.CPU.Cpus, checked.CPU.Mems
	}
	if checked.Pids != nil {
		out.PidsLimit = checked.Pids.Limit
	}
	for _, l := range checked.HugepageLimits {
		out.HugetlbLimit = append(out.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: l.Pagesize, Limit: l.Limit})
	}
	out.Unified = checked.Unified
	return out, warnings, nil
}

// fitsPod refuses what a cgroup of several containers has no place for, and what
// cannot be added to the limits of others.
func fitsPod(at string, c *pod.Config) error {
	refuse := func(field, why string) error {
		return fmt.Errorf("%s%s %s: %w", at, field, why, errdefs.ErrInvalidArgument)
	}
	const score = "is set, but a score is a process's; set it for the containers"
	const sum = "is set, but it cannot be added to what the containers may use"
	if r := c.Resources; r != nil && r.OOMScoreAdj != 0 {
		return refuse("resources.oom_score_adj", score)
	}
	o := c.Overhead
	if o == nil {
		return nil
	}
	for i, h := range o.HugepageLimits {
		if h.Limit > 0 {
			return refuse(fmt.Sprintf("overhead.hugepage_limits[%d]", i), sum)
		}
	}
	switch {
	case o.OOMScoreAdj != 0:
		return refuse("overhead.oom_score_adj", score)
	case o.CpusetCPUs != "":
		return refuse("overhead.cpuset_cpus", sum)
	case o.CpusetMems != "":
		return refuse("overhead.cpuset_mems", sum)
	case o.MemorySwapLimit != 0:
		return refuse("overhead.memory_swap_limit_in_bytes", sum)
	case len(o.Unified) > 0:
		return refuse("overhead.unified", sum)
	}
	return nil
}

// canHave refuses files that a cgroup does not have, and leaves out what its
// kernel does not account, with a warning.
func canHave(at string, m cgroups.Manager, r *cgroups.Resources) (warnings []string, err error) {
	if r.MemorySwap != 0 && !hasSwap(m.Path("memory")) {
		if r.MemorySwap > 0 {
			warnings = []string{at + "resources.memory_swap_limit_in_bytes: this kernel does not account swap, so nothing limits it"}
		}
		r.MemorySwap = 0
	}
	for name := range r.Unified {
		if _, err := os.Stat(filepath.Join(m.Path(""), name)); err != nil {
			return nil, fmt.Errorf("%sresources.%s is no file that a cgroup of this kernel has: %w", at, limits.UnifiedField(name), errdefs.ErrInvalidArgument)
		}
	}
	return warnings, nil
}

func (d *Driver) warn(id pod.ID, warnings []string) {
	for _, w := range warnings {
		d.cfg.Log.Warn("a wish of the pod cannot be met on this host", "pod", id, "wish", w)
	}
}

// together adds up what containers may use and what running them costs. A limit that
// only one side has is no limit of the pod. Of swap there is none unless one is
// asked for: containers may have limits of their own.
func together(containers, overhead *pod.Resources) *cgroups.Resources {
	out := &cgroups.Resources{SkipDevices: true}
	if containers == nil {
		return out
	}
	extra := overhead
	if extra == nil {
		extra = &pod.Resources{}
	}
	if containers.CPUShares > 0 {
		out.CpuShares = uint64(containers.CPUShares + max(extra.CPUShares, 0))
		out.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(out.CpuShares)
	}
	if containers.CPUQuota > 0 {
		period := orDefaultPeriod(containers.CPUPeriod)
		out.CpuPeriod = uint64(period)
		out.CpuQuota = containers.CPUQuota
		if extra.CPUQuota > 0 {
			out.CpuQuota = min(add(out.CpuQuota, scale(extra.CPUQuota, period, orDefaultPeriod(extra.CPUPeriod))), mostQuota)
		}
	}
	cost := max(extra.MemoryLimit, 0)
	if containers.MemoryLimit > 0 {
		out.Memory = add(containers.MemoryLimit, cost)
	}
	switch {
	case containers.MemorySwapLimit > 0:
		out.MemorySwap = add(containers.MemorySwapLimit, cost)
	case containers.MemorySwapLimit < 0:
		out.MemorySwap = unlimited
	}
	return out
}

// defaultPeriod is the kernel's, in us.
const defaultPeriod = 100_000

// mostQuota is the largest that the kernel takes, in us.
const mostQuota = 1<<44 - 1

func orDefaultPeriod(us int64) int64 {
	if us <= 0 {
		return defaultPeriod
	}
	return us
}

// add is for what is not negative, and stays below what a number can hold.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// scale is quota, which is for periods of from, for those of to.
func scale(quota, to, from int64) int64 {
	high, low := bits.Mul64(uint64(quota), uint64(to))
	if high >= uint64(from) {
		return mostQuota
	}
	q, _ := bits.Div64(high, low, uint64(from))
	return int64(min(q, mostQuota))
}
