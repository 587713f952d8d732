package stats

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// sheet is where the metrics of one container are written down.
type sheet struct {
	values []pod.Metric
}

// put leaves out what could not be read.
func (s *sheet) put(f *pod.MetricFamily, v *uint64, labels ...string) {
	if v != nil {
		s.set(f, *v, labels...)
	}
}

func (s *sheet) set(f *pod.MetricFamily, v uint64, labels ...string) {
	s.values = append(s.values, pod.Metric{Family: f, Labels: labels, Value: v})
}

// seconds is put for what was read in other units.
func (s *sheet) seconds(f *pod.MetricFamily, v *uint64, unit time.Duration, labels ...string) {
	if v != nil {
		s.set(f, *v/uint64(time.Second/unit), labels...)
	}
}

// Families are the metrics that there may be. They do not change.
func (m *Meter) Families() []*pod.MetricFamily { return m.families.all }

// MetricsOf measures containers and pods as monitoring systems want it, in the
// order of the subjects. An error that wraps errdefs.ErrNotFound is that of one
// that does not run any more.
func (m *Meter) MetricsOf(ctx context.Context, subjects []pod.Subject) []pod.Metrics {
	out := make([]pod.Metrics, len(subjects))
	for i, found := range m.metrics.of(ctx, subjects) {
		out[i] = found.value
		out[i].Err = found.err
		if found.kept {
			out[i].At = found.at
		}
	}
	if m.families.groups[groupDisk] {
		m.awaitLayers(ctx, subjects, out)
	}
	return out
}

func (m *Meter) measureMetrics(s pod.Subject) (pod.Metrics, error) {
	if s.Container == nil {
		return m.podMetrics(s.Pod)
	}
	return m.containerMetrics(s.Pod, s.Container)
}

// firstWalks is how long those who ask for metrics wait for the first walks
// through layers that nobody has asked about before.
const firstWalks = 100 * time.Millisecond

// awaitLayers adds what the first walk through each layer finds, as far as it
// ends in time.
func (m *Meter) awaitLayers(ctx context.Context, subjects []pod.Subject, out []pod.Metrics) {
	ctx, cancel := context.WithTimeout(ctx, firstWalks)
	defer cancel()
	for i, s := range subjects {
		if s.Container == nil || out[i].Err != nil || slices.ContainsFunc(out[i].Values, ofLayer) {
			continue
		}
		if u := m.layers.of(s.Container.ID); u == nil && !m.layers.await(ctx, s.Container.ID) {
			continue
		}
		if u := m.layers.of(s.Container.ID); u != nil {
			more := pod.Metric{Family: fsUsage, Labels: []string{m.layerDevice}, Value: u.Bytes}
			out[i].Values = append(slices.Clip(out[i].Values), more) // others have the same values
		}
	}
}

func ofLayer(m pod.Metric) bool { return m.Family == fsUsage }

func (m *Meter) containerMetrics(r *pod.Record, c *pod.Container) (pod.Metrics, error) {
	path, err := m.cfg.ContainerCgroup(r, c.ID)
	if err != nil {
		return pod.Metrics{}, fmt.Errorf("measure container %s: %w", c.ID.Short(), err)
	}
	seen, err := m.cgroups.look(path)
	if err != nil {
		return pod.Metrics{}, fmt.Errorf("measure container %s: %w", c.ID.Short(), err)
	}
	f := openFiles()
	defer f.release()
	t := target{files: f, path: path, seen: &seen, container: c, sheet: sheet{values: make([]pod.Metric, 0, len(m.families.all)+8)}}
	if r.Sandbox.OwnKernel {
		m.insideMetrics(&t, m.inside.of(r, c.ID))
		return pod.Metrics{Cgroup: path, Values: t.values}, nil
	}
	for _, g := range []struct {
		name  string
		write func(*target)
	}{
		{groupCPU, m.cgroups.cpuMetrics},
		{groupMemory, m.cgroups.memoryMetrics},
		{groupDisk, m.diskMetrics},
		{groupHugetlb, m.cgroups.hugetlbMetrics},
		{groupProcess, m.cgroups.processMetrics},
		{groupPressure, pressureMetrics},
		{groupSpec, m.cgroups.specMetrics},
		{groupLife, m.cgroups.lifeMetrics},
	} {
		if m.families.groups[g.name] {
			g.write(&t)
		}
	}
	return pod.Metrics{Cgroup: path, Values: t.values}, nil
}

// insideMetrics is for a container in a sandbox with a kernel of its own, whose
// cgroup on the host has only what stands in for it.
func (m *Meter) insideMetrics(t *target, u pod.InsideUsage) {
	g := m.families.groups
	if g[groupCPU] {
		t.seconds(cpuUsage, u.CPU, time.Nanosecond, "total")
		t.seconds(cpuUser, u.User, time.Nanosecond)
		t.seconds(cpuSystem, u.System, time.Nanosecond)
	}
	if g[groupMemory] {
		t.put(memoryUsage, u.Memory)
		t.put(memoryWorking, u.Memory) // see fromInside
	}
	if g[groupProcess] {
		t.put(threads, u.Threads)
	}
	if g[groupDisk] {
		m.layerMetrics(t)
	}
	if g[groupSpec] {
		m.cgroups.specMetrics(t)
	}
	if g[groupLife] {
		t.times()
	}
}

// podMetrics measures what the containers of a pod have together and none of
// them alone: its network.
func (m *Meter) podMetrics(r *pod.Record) (pod.Metrics, error) {
	path, err := m.cfg.PodCgroup(r)
	if err != nil {
		return pod.Metrics{}, fmt.Errorf("measure pod %s: %w", r.ID.Short(), err)
	}
	out := pod.Metrics{Cgroup: path}
	if !m.families.groups[groupNetwork] {
		return out, nil
	}
	traffic, ended := m.network(r)
	if ended {
		return pod.Metrics{}, fmt.Errorf("measure pod %s: %w", r.ID.Short(), gone(path))
	}
	if traffic == nil {
		return out, nil
	}
	s := sheet{values: make([]pod.Metric, 0, len(familiesOf[groupNetwork])*len(traffic.Interfaces))}
	for _, i := range traffic.Interfaces {
		s.set(netReceiveBytes, i.RxBytes, i.Name)
		s.set(netReceivePackets, i.RxPackets, i.Name)
		s.set(netReceiveDropped, i.RxDropped, i.Name)
		s.set(netReceiveErrors, i.RxError, i.Name)
		s.set(netTransmitBytes, i.TxBytes, i.Name)
		s.set(netTransmitPackets, i.TxPackets, i.Name)
		s.set(netTransmitDropped, i.TxDropped, i.Name)
		s.set(netTransmitErrors, i.TxError, i.Name)
	}
	out.Values = s.values
	return out, nil
}

// target is one container that is measured.
type target struct {
	*files
	sheet
	path      string
	seen      *seen
	container *pod.Container
}

// hertz is in what the kernel counts processor time of cgroup v1, whatever its
// own clock: USER_HZ.
const hertz = 100

func (c *cgroups) cpuMetrics(t *target) {
	if t.seen.cpu != nil {
		t.seconds(cpuUsage, t.seen.cpu.Total, time.Nanosecond, "total")
	}
	if c.unified {
		of := t.keys(c.cpu+t.path, "cpu.stat", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")
		t.seconds(cpuUser, of[0], time.Microsecond)
		t.seconds(cpuSystem, of[1], time.Microsecond)
		t.put(cfsPeriods, of[2])
		t.put(cfsThrottled, of[3])
		t.seconds(cfsWaited, of[4], time.Microsecond)
		return
	}
	of := t.keys(c.cpu+t.path, "cpuacct.stat", "user", "system")
	t.seconds(cpuUser, of[0], time.Second/hertz)
	t.seconds(cpuSystem, of[1], time.Second/hertz)
	of = t.keys(c.quota+t.path, "cpu.stat", "nr_periods", "nr_throttled", "throttled_time")
	t.put(cfsPeriods, of[0])
	t.put(cfsThrottled, of[1])
	t.seconds(cfsWaited, of[2], time.Nanosecond)
}

func (c *cgroups) memoryMetrics(t *target) {
	if u := t.seen.memory; u != nil {
		t.put(memoryUsage, u.Total)
		t.put(memoryWorking, u.WorkingSet)
		t.put(memoryRSS, u.RSS)
	}
	if u := t.seen.swap; u != nil {
		t.put(memorySwap, u.Total)
	}
	dir := c.memory + t.path
	if c.unified {
		of := t.keys(dir, "memory.stat", "file", "file_mapped", "kernel", "pgfault", "pgmajfault")
		t.put(memoryCache, of[0])
		t.put(memoryMapped, of[1])
		t.put(memoryKernel, of[2])
		t.faults(of[3], of[4], of[3], of[4]) // it has no counts without the cgroups below
		t.put(memoryPeak, t.optional(dir, "memory.peak"))
		t.put(memoryFailcnt, t.keys(dir, "memory.events", "max")[0])
		return
	}
	of := t.keys(dir, "memory.stat", "total_cache", "total_mapped_file", "pgfault", "pgmajfault", "total_pgfault", "total_pgmajfault")
	t.put(memoryCache, of[0])
	t.put(memoryMapped, of[1])
	t.faults(of[2], of[3], of[4], of[5])
	t.put(memoryKernel, t.optional(dir, "memory.kmem.usage_in_bytes"))
	t.put(memoryPeak, t.optional(dir, "memory.max_usage_in_bytes"))
	t.put(memoryFailcnt, t.optional(dir, "memory.failcnt"))
}

// faults are those of the cgroup alone, and with the cgroups below it.
func (t *target) faults(own, ownMajor, all, allMajor *uint64) {
	t.put(memoryFailures, own, "pgfault", "container")
	t.put(memoryFailures, ownMajor, "pgmajfault", "container")
	t.put(memoryFailures, all, "pgfault", "hierarchy")
	t.put(memoryFailures, allMajor, "pgmajfault", "hierarchy")
}

func pressureMetrics(t *target) {
	if u := t.seen.cpu; u != nil {
		t.pressureOf(u.Pressure, cpuWaiting, cpuStalled)
	}
	if u := t.seen.memory; u != nil {
		t.pressureOf(u.Pressure, memoryWaiting, memoryStalled)
	}
	if u := t.seen.io; u != nil {
		t.pressureOf(u.Pressure, ioWaiting, ioStalled)
	}
}

func (t *target) pressureOf(p *pod.Pressure, some, full *pod.MetricFamily) {
	if p == nil {
		return
	}
	if p.Some != nil {
		t.set(some, uint64(p.Some.Total/time.Second))
	}
	if p.Full != nil {
		t.set(full, uint64(p.Full.Total/time.Second))
	}
}

// Without limits the kernel has these, and both versions of cgroups, as the
// shares that the one understands stand for weights of the other.
const (
	defaultPeriod = 100_000
	defaultShares = 1024
)

// specMetrics tells the limits that are in force: a record has them, and every
// update of them.
func (c *cgroups) specMetrics(t *target) {
	r := t.container.Limits()
	if r == nil {
		r = &pod.Resources{}
	}
	t.set(specPeriod, positive(r.CPUPeriod, defaultPeriod))
	if r.CPUQuota > 0 {
		t.set(specQuota, uint64(r.CPUQuota))
	}
	t.set(specShares, positive(r.CPUShares, defaultShares))
	t.set(specMemory, positive(r.MemoryLimit, 0))
	t.set(specReservation, reservation(r.Unified["memory.low"]))
	swap := positive(r.MemorySwapLimit, 0)
	if c.unified { // which limits swap by itself
		swap -= min(swap, positive(r.MemoryLimit, 0))
	}
	t.set(specSwap, swap)
}

func positive(v int64, otherwise uint64) uint64 {
	if v <= 0 {
		return otherwise
	}
	return uint64(v)
}

// reservation is 0 for "" and for "max", which reserves whatever there is.
func reservation(low string) uint64 {
	if n := number([]byte(low)); n != nil {
		return *n
	}
	return 0
}

func (t *target) times() {
	t.set(lastSeen, uint64(time.Now().Unix()))
	if at := t.container.StartedAt; !at.IsZero() {
		t.set(startTime, uint64(at.Unix()))
	}
}

func (c *cgroups) lifeMetrics(t *target) {
	t.times()
	file := "memory.oom_control"
	if c.unified {
		file = "memory.events"
	}
	t.put(oomEvents, t.keys(c.memory+t.path, file, "oom_kill")[0])
}

func (c *cgroups) hugetlbMetrics(t *target) {
	for _, size := range c.pageSizes {
		name, dir := "hugetlb."+size, c.huge+t.path
		if c.unified { // which keeps no record of the most
			t.put(hugetlbUsage, t.optional(dir, name+".current"), size)
			continue
		}
		t.put(hugetlbUsage, t.optional(dir, name+".usage_in_bytes"), size)
		t.put(hugetlbPeak, t.optional(dir, name+".max_usage_in_bytes"), size)
	}
}

// diskMetrics tells what went to and came from block devices, too.
func (m *Meter) diskMetrics(t *target) {
	m.layerMetrics(t)
	m.cgroups.ioMetrics(t)
}

// layerMetrics tells what the container has written, and what the file system has
// left for that.
func (m *Meter) layerMetrics(t *target) {
	if u := m.layers.of(t.container.ID); u != nil {
		t.set(fsUsage, u.Bytes, m.layerDevice)
	}
	var fs unix.Statfs_t
	if unix.Statfs(m.cfg.LayerPath, &fs) == nil {
		t.set(fsLimit, fs.Blocks*uint64(fs.Bsize), m.layerDevice)
		t.set(fsInodes, fs.Files, m.layerDevice)
		t.set(fsInodesFree, fs.Ffree, m.layerDevice)
	}
}
