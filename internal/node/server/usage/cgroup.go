package usage

import (
	"fmt"
	"os"
	"strconv"
	"time"

	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// cgroup reads what a cgroup has used. Its name is that in the hierarchy, such
// as /kubepods.
func (h host) cgroup(name string) (*statsv1.CPUStats, *statsv1.MemoryStats, error) {
	if _, err := os.Stat(h.path("sys/fs/cgroup/cgroup.controllers")); err == nil {
		return h.cgroup2("sys/fs/cgroup" + name)
	}
	return h.cgroup1(name)
}

func (h host) cgroup2(dir string) (*statsv1.CPUStats, *statsv1.MemoryStats, error) {
	cpu, err := h.table(dir + "/cpu.stat")
	if err != nil {
		return nil, nil, err
	}
	c := &statsv1.CPUStats{UsageCoreNanoSeconds: new(cpu["usage_usec"] * uint64(time.Microsecond))}
	m, err := h.cgroupMemory(dir+"/memory.current", dir+"/memory.stat", "")
	return c, m, err
}

func (h host) cgroup1(name string) (*statsv1.CPUStats, *statsv1.MemoryStats, error) {
	used, err := strconv.ParseUint(h.text("sys/fs/cgroup/cpuacct"+name+"/cpuacct.usage"), 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("read the processor time of cgroup %s: %w", name, err)
	}
	dir := "sys/fs/cgroup/memory" + name
	m, err := h.cgroupMemory(dir+"/memory.usage_in_bytes", dir+"/memory.stat", "total_")
	return &statsv1.CPUStats{UsageCoreNanoSeconds: &used}, m, err
}

// cgroupMemory reads names with a prefix: on cgroup v1 the others leave out what
// is below.
func (h host) cgroupMemory(current, stat, prefix string) (*statsv1.MemoryStats, error) {
	used, err := strconv.ParseUint(h.text(current), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the memory use of a cgroup from %s: %w", h.path(current), err)
	}
	m, err := h.table(stat)
	if err != nil {
		return nil, err
	}
	rss, ok := m[prefix+"rss"]
	if !ok {
		rss = m["anon"]
	}
	return &statsv1.MemoryStats{
		UsageBytes: &used, WorkingSetBytes: new(less(used, m[prefix+"inactive_file"])), RSSBytes: &rss,
		PageFaults: new(m[prefix+"pgfault"]), MajorPageFaults: new(m[prefix+"pgmajfault"]),
	}, nil
}
