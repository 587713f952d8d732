package stats

import (
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// A group of families is measured, or left out, as a whole. These are the names
// that the configuration has for them.
const (
	groupCPU      = "cpu"
	groupMemory   = "memory"
	groupNetwork  = "network"
	groupDisk     = "disk"
	groupHugetlb  = "hugetlb"
	groupProcess  = "process"
	groupPressure = "pressure"
	groupSpec     = "spec"
	groupLife     = "life"
)

// families are the metrics of cAdvisor that a kubelet takes from a runtime (KEP
// 2371), under cAdvisor's names and with its labels. The CRI has whole numbers
// only, so that seconds are whole seconds.
type families struct {
	all    []*pod.MetricFamily
	groups map[string]bool
}

// newFamilies takes the groups that are wanted.
func newFamilies(groups []string) (*families, error) {
	f := &families{groups: map[string]bool{}}
	for _, g := range groups {
		if familiesOf[g] == nil {
			return nil, fmt.Errorf("there are no metrics %q: %w", g, errdefs.ErrInvalidArgument)
		}
		if !f.groups[g] {
			f.all = append(f.all, familiesOf[g]...)
		}
		f.groups[g] = true
	}
	return f, nil
}

func counter(name, help string, labels ...string) *pod.MetricFamily {
	return &pod.MetricFamily{Name: "container_" + name, Help: help, Counter: true, Labels: labels}
}

func gauge(name, help string, labels ...string) *pod.MetricFamily {
	return &pod.MetricFamily{Name: "container_" + name, Help: help, Labels: labels}
}

var (
	cpuUsage     = counter("cpu_usage_seconds_total", "Processor time used, in seconds.", "cpu")
	cpuUser      = counter("cpu_user_seconds_total", "Processor time used outside the kernel, in seconds.")
	cpuSystem    = counter("cpu_system_seconds_total", "Processor time used in the kernel, in seconds.")
	cfsPeriods   = counter("cpu_cfs_periods_total", "Periods of the processor quota that have passed.")
	cfsThrottled = counter("cpu_cfs_throttled_periods_total", "Periods in which the processor quota was used up.")
	cfsWaited    = counter("cpu_cfs_throttled_seconds_total", "Time spent waiting for the next period of the processor quota, in seconds.")

	memoryUsage    = gauge("memory_usage_bytes", "Memory in use, the page cache included, in bytes.")
	memoryPeak     = gauge("memory_max_usage_bytes", "The most memory that was in use, in bytes.")
	memoryWorking  = gauge("memory_working_set_bytes", "Memory in use without the files that nobody has used lately, in bytes.")
	memoryRSS      = gauge("memory_rss", "Anonymous memory, in bytes.")
	memoryCache    = gauge("memory_cache", "Page cache, in bytes.")
	memoryMapped   = gauge("memory_mapped_file", "Mapped files, in bytes.")
	memoryKernel   = gauge("memory_kernel_usage", "Memory that the kernel uses on the container's behalf, in bytes.")
	memorySwap     = gauge("memory_swap", "Swap in use, in bytes.")
	memoryFailcnt  = counter("memory_failcnt", "How often memory use has hit its limit.")
	memoryFailures = counter("memory_failures_total", "Page faults.", "failure_type", "scope")

	netReceiveBytes    = counter("network_receive_bytes_total", "Bytes received.", "interface")
	netReceivePackets  = counter("network_receive_packets_total", "Packets received.", "interface")
	netReceiveDropped  = counter("network_receive_packets_dropped_total", "Packets dropped while receiving.", "interface")
	netReceiveErrors   = counter("network_receive_errors_total", "Errors while receiving.", "interface")
	netTransmitBytes   = counter("network_transmit_bytes_total", "Bytes sent.", "interface")
	netTransmitPackets = counter("network_transmit_packets_total", "Packets sent.", "interface")
	netTransmitDropped = counter("network_transmit_packets_dropped_total", "Packets dropped while sending.", "interface")
	netTransmitErrors  = counter("network_transmit_errors_total", "Errors while sending.", "interface")

	fsUsage       = gauge("fs_usage_bytes", "What the container has written to its root file system, in bytes.", "device")
	fsLimit       = gauge("fs_limit_bytes", "Size of the file system that writable layers are on, in bytes.", "device")
	fsInodes      = gauge("fs_inodes_total", "Inodes of the file system that writable layers are on.", "device")
	fsInodesFree  = gauge("fs_inodes_free", "Free inodes of the file system that writable layers are on.", "device")
	fsReads       = counter("fs_reads_total", "Reads from block devices.", "device")
	fsReadBytes   = counter("fs_reads_bytes_total", "Bytes read from block devices.", "device")
	fsWrites      = counter("fs_writes_total", "Writes to block devices.", "device")
	fsWrittenByte = counter("fs_writes_bytes_total", "Bytes written to block devices.", "device")
	blkioUsage    = counter("blkio_device_usage_total", "Bytes read from and written to block devices.", "device", "major", "minor", "operation")

	hugetlbUsage = gauge("hugetlb_usage_bytes", "Huge pages in use, in bytes.", "pagesize")
	hugetlbPeak  = gauge("hugetlb_max_usage_bytes", "The most huge pages that were in use, in bytes.", "pagesize")

	processes   = gauge("processes", "Processes.")
	threads     = gauge("threads", "Threads.")
	threadsMax  = gauge("threads_max", "The most threads that there may be; 0 without a limit.")
	descriptors = gauge("file_descriptors", "Open file descriptors.")
	sockets     = gauge("sockets", "Open sockets.")
	ulimits     = gauge("ulimits_soft", "Soft limits of the container's first process, where it has any.", "ulimit")

	cpuWaiting    = counter("pressure_cpu_waiting_seconds_total", "Time in which some threads waited for a processor, in seconds.")
	cpuStalled    = counter("pressure_cpu_stalled_seconds_total", "Time in which all threads waited for a processor, in seconds.")
	memoryWaiting = counter("pressure_memory_waiting_seconds_total", "Time in which some threads waited for memory, in seconds.")
	memoryStalled = counter("pressure_memory_stalled_seconds_total", "Time in which all threads waited for memory, in seconds.")
	ioWaiting     = counter("pressure_io_waiting_seconds_total", "Time in which some threads waited for input or output, in seconds.")
	ioStalled     = counter("pressure_io_stalled_seconds_total", "Time in which all threads waited for input or output, in seconds.")

	specPeriod      = gauge("spec_cpu_period", "Period of the processor quota, in us.")
	specQuota       = gauge("spec_cpu_quota", "Processor quota for each period, in us.")
	specShares      = gauge("spec_cpu_shares", "Shares of the processors.")
	specMemory      = gauge("spec_memory_limit_bytes", "Limit of memory, in bytes; 0 without one.")
	specReservation = gauge("spec_memory_reservation_limit_bytes", "Memory that is not taken away while others have more, in bytes; 0 without any.")
	specSwap        = gauge("spec_memory_swap_limit_bytes", "Limit of swap, in bytes, with that of memory on cgroup v1; 0 without one.")

	lastSeen  = gauge("last_seen", "When the container was looked at, in seconds since 1970.")
	startTime = gauge("start_time_seconds", "When the container was started, in seconds since 1970.")
	oomEvents = counter("oom_events_total", "Processes killed for want of memory.")
)

var familiesOf = map[string][]*pod.MetricFamily{
	groupCPU: {cpuUsage, cpuUser, cpuSystem, cfsPeriods, cfsThrottled, cfsWaited},
	groupMemory: {
		memoryUsage, memoryPeak, memoryWorking, memoryRSS, memoryCache, memoryMapped, memoryKernel, memorySwap,
		memoryFailcnt, memoryFailures,
	},
	groupNetwork: {
		netReceiveBytes, netReceivePackets, netReceiveDropped, netReceiveErrors,
		netTransmitBytes, netTransmitPackets, netTransmitDropped, netTransmitErrors,
	},
	groupDisk:    {fsUsage, fsLimit, fsInodes, fsInodesFree, fsReads, fsReadBytes, fsWrites, fsWrittenByte, blkioUsage},
	groupHugetlb: {hugetlbUsage, hugetlbPeak},
	groupProcess: {processes, threads, threadsMax, descriptors, sockets, ulimits},
	groupPressure: {
		cpuWaiting, cpuStalled, memoryWaiting, memoryStalled, ioWaiting, ioStalled,
	},
	groupSpec: {specPeriod, specQuota, specShares, specMemory, specReservation, specSwap},
	groupLife: {lastSeen, startTime, oomEvents},
}
