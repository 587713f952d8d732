package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/limits"
	"fairlead.run/internal/pod"
)

// Resize gives the pod's cgroup the limits of another configuration. A parent
// that the caller has named has limits of the caller's.
func (d *Driver) Resize(_ context.Context, r *pod.Record, to *pod.Config) error {
	want, warnings, err := limitsOf(atUpdate, to)
	if err != nil || r.Config.CgroupParent != "" {
		return err
	}
	have, _, err := limitsOf(atUpdate, &r.Config)
	if err != nil { // a build that did not look at everything has made this pod
		have = together(r.Config.Resources, r.Config.Overhead)
	}
	own, name := d.ownCgroup(r.ID)
	own.Resources = want
	m, err := manager.New(own)
	if err == nil {
		err = changed(m, have, want)
	}
	var swap []string
	if err == nil {
		swap, err = canHave(atUpdate, m, want)
	}
	if err == nil {
		err = passSets(m, r, want)
	}
	if err == nil {
		err = setLimits(m, want)
	}
	if isInUse(err) {
		return fmt.Errorf("set the limits of cgroup %s, of which more is in use: %w: %w", name, err, errdefs.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("set the limits of cgroup %s: %w", name, err)
	}
	d.warn(r.ID, append(warnings, swap...))
	return nil
}

// isInUse says that the kernel refused a limit because more than that is in use
// and cannot be reclaimed. Only cgroup v1 does. For memory, the library replaces
// the kernel's EBUSY by words of its own.
func isInUse(err error) bool {
	return err != nil && (errors.Is(err, unix.EBUSY) || strings.Contains(err.Error(), "unable to set memory limit to"))
}

// Without a limit the kernel has these. For the library a zero is no change.
const (
	unlimited     = -1
	defaultShares = 1024
)

// changed adds to the new limits those that are no more, as the kernel has them
// where there is none.
func changed(m cgroups.Manager, have, want *cgroups.Resources) error {
	if have.Memory != 0 && want.Memory == 0 {
		want.Memory = unlimited
	}
	if have.MemorySwap != 0 && want.MemorySwap == 0 {
		want.MemorySwap = unlimited
	}
	if have.CpuQuota != 0 && want.CpuQuota == 0 {
		want.CpuQuota, want.CpuPeriod = unlimited, defaultPeriod
	}
	if have.CpuShares != 0 && want.CpuShares == 0 {
		want.CpuShares = defaultShares
		want.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(defaultShares)
	}
	if have.PidsLimit != nil && want.PidsLimit == nil {
		none := int64(unlimited)
		want.PidsLimit = &none
	}
	for _, l := range have.HugetlbLimit {
		same := func(other *cgroups.HugepageLimit) bool { return other.Pagesize == l.Pagesize }
		if !slices.ContainsFunc(want.HugetlbLimit, same) {
			want.HugetlbLimit = append(want.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: l.Pagesize, Limit: math.MaxInt64})
		}
	}
	if have.CpusetCpus != "" && want.CpusetCpus == "" {
		want.CpusetCpus = setAbove(m, cpus)
	}
	if have.CpusetMems != "" && want.CpusetMems == "" {
		want.CpusetMems = setAbove(m, mems)
	}
	return restoreFiles(have.Unified, want)
}

// byDefault is what files of cgroup v2 have that nobody has written to.
var byDefault = map[string]string{
	"cpu.idle": "0", "cpu.max": "max 100000", "cpu.max.burst": "0", "cpu.weight": "100",
	"io.weight":  "default 100",
	"memory.max": "max", "memory.high": "max", "memory.low": "0", "memory.min": "0", "memory.oom.group": "0",
	"memory.swap.high": "max", "memory.swap.max": "max", "memory.zswap.max": "max", "memory.zswap.writeback": "1",
}

// restoreFiles gives files that are named no more what they had before.
func restoreFiles(have map[string]string, want *cgroups.Resources) error {
	for name := range have {
		if _, is := want.Unified[name]; is {
			continue
		}
		value, known := byDefault[name]
		if !known {
			return fmt.Errorf("%sresources.%s cannot be left out again, as what the kernel has without it is not known; name the value: %w",
				atUpdate, limits.UnifiedField(name), errdefs.ErrInvalidArgument)
		}
		if want.Unified == nil {
			want.Unified = map[string]string{}
		}
		want.Unified[name] = value
	}
	return nil
}
