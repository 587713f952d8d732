package stats

import (
	"path/filepath"
	"strings"
	"time"

	"fairlead.run/internal/pod"
)

// memoryFiles are the names of the same things in the two versions.
type memoryFiles struct {
	current, limit, swapCurrent, swapLimit string
	inactive, rss, faults, major           string // keys in memory.stat, with the cgroups below
}

var (
	memory1 = memoryFiles{
		current: "memory.usage_in_bytes", limit: "memory.limit_in_bytes",
		swapCurrent: "memory.memsw.usage_in_bytes", swapLimit: "memory.memsw.limit_in_bytes", // of both together
		inactive: "total_inactive_file", rss: "total_rss", faults: "total_pgfault", major: "total_pgmajfault",
	}
	memory2 = memoryFiles{
		current: "memory.current", limit: "memory.max",
		swapCurrent: "memory.swap.current", swapLimit: "memory.swap.max",
		inactive: "inactive_file", rss: "anon", faults: "pgfault", major: "pgmajfault",
	}
)

func (c *cgroups) lookMemory(f *files, path string) (*pod.MemoryUsage, *pod.SwapUsage) {
	names, dir := &memory1, c.memory+path
	if c.unified {
		names = &memory2
	}
	u := &pod.MemoryUsage{At: time.Now(), Total: f.number(dir, names.current)}
	if u.Total == nil {
		return nil, nil
	}
	of := f.keys(dir, "memory.stat", names.inactive, names.rss, names.faults, names.major)
	inactive, faults := of[0], of[2]
	u.RSS, u.MajorFaults = of[1], of[3]
	u.WorkingSet = less(u.Total, inactive)
	u.MinorFaults = less(faults, u.MajorFaults) // the kernel counts all of them together
	limits := c.limitDir(dir)
	limit := f.limit(limits, names.limit)
	u.Available = less(limit, u.WorkingSet)
	return u, c.lookSwap(f, swapIn{dir, limits, names, u.Total, limit})
}

// swapIn is what lookSwap needs of what was read before.
type swapIn struct {
	dir, limits   string
	names         *memoryFiles
	memory, limit *uint64
}

// lookSwap is nil where the kernel keeps no account of swap.
func (c *cgroups) lookSwap(f *files, in swapIn) *pod.SwapUsage {
	u := &pod.SwapUsage{At: time.Now(), Total: f.optional(in.dir, in.names.swapCurrent)}
	if u.Total == nil {
		return nil
	}
	limit := f.limit(in.limits, in.names.swapLimit)
	if !c.unified {
		u.Total, limit = less(u.Total, in.memory), less(limit, in.limit)
	}
	u.Available = less(limit, u.Total)
	return u
}

// limitDir is where the limits of a cgroup are. In a scope of systemd's, crun
// makes a cgroup of its own and limits that.
func (c *cgroups) limitDir(dir string) string {
	if c.systemd && strings.HasSuffix(dir, ".scope") {
		if below := filepath.Join(dir, "container"); exists(below) {
			return below
		}
	}
	return dir
}

// less is a without b, and not below zero: the two were not read at once. It is
// nil if one of them is.
func less(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	out := *a - min(*a, *b)
	return &out
}
