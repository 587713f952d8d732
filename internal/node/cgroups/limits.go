package cgroups

import (
	"maps"
	"strings"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/priority"
)

// The kubelet's numbers.
const (
	period    = 100_000 // us
	minQuota  = 1_000   // us, what the kernel takes
	minShares = 2
	maxShares = 262_144
	maxMilli  = 1_000_000_000 // a million CPUs: keeps products within 64 bits

	unlimited = -1
)

// Limits are what a cgroup may use.
type Limits struct {
	CPUShares uint64
	CPUQuota  int64            // us in 100 ms; -1 for none
	Memory    int64            // bytes; -1 for none
	Pids      int64            // -1 for none
	Hugepages map[string]int64 // bytes, by size as "hugepages-2Mi"
}

func (l Limits) equal(other Limits) bool {
	return l.CPUShares == other.CPUShares && l.CPUQuota == other.CPUQuota && l.Memory == other.Memory &&
		l.Pids == other.Pids && maps.Equal(l.Hugepages, other.Hugepages)
}

// PodLimits are those of a pod: what its containers use together at most, with
// sidecars and init containers as KEP-753 counts them, or what the pod says for
// itself (KEP-2837), and its overhead. A limit of containers counts only if each
// of them has one.
func PodLimits(pod *corev1.Pod) Limits {
	pod = capacity.Defaulted(pod)
	opts := podresources.PodResourcesOptions{}
	requests, limits := podresources.PodRequests(pod, opts), podresources.PodLimits(pod, opts)
	cpu, memory := limited(pod, corev1.ResourceCPU), limited(pod, corev1.ResourceMemory)
	out := Limits{CPUShares: minShares, CPUQuota: unlimited, Memory: unlimited, Pids: unlimited, Hugepages: hugepages(limits)}
	if priority.Class(pod) == corev1.PodQOSBestEffort {
		return out
	}
	out.CPUShares = shares(milli(requests.Cpu()))
	if cpu {
		out.CPUQuota = max(milli(limits.Cpu())*period/1000, minQuota)
	}
	if memory {
		out.Memory = limits.Memory().Value()
	}
	return out
}

// limited says whether the pod or each of its containers has a limit.
func limited(pod *corev1.Pod, what corev1.ResourceName) bool {
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[what]; ok && !q.IsZero() {
			return true
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if q := list[i].Resources.Limits[what]; q.IsZero() {
				return false
			}
		}
	}
	return true
}

func hugepages(limits corev1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for what, q := range limits {
		if strings.HasPrefix(string(what), corev1.ResourceHugePagesPrefix) {
			out[string(what)] = q.Value()
		}
	}
	return out
}

// milli is a quantity in thousandths. One that is too large for that would
// overflow to nothing.
func milli(q *resource.Quantity) int64 {
	if q.Value() >= maxMilli/1000 {
		return maxMilli
	}
	return q.MilliValue()
}

func shares(milli int64) uint64 {
	return uint64(min(max(milli*1024/1000, minShares), maxShares))
}

// resources are the limits as the library has them. What has no limit is said to
// have none, so that an earlier limit goes.
func (m *Manager) resources(l Limits) *cgroups.Resources {
	r := &cgroups.Resources{
		SkipDevices: true, // a parent of several containers has no rules for devices
		CpuShares:   l.CPUShares,
		CpuWeight:   cgroups.ConvertCPUSharesToCgroupV2Value(l.CPUShares),
		CpuQuota:    l.CPUQuota,
		CpuPeriod:   period,
		Memory:      l.Memory,
	}
	if m.has("pids") {
		r.PidsLimit = &l.Pids
	}
	if l.Hugepages == nil || !m.has("hugetlb") {
		return r
	}
	// A size that nobody asked for is refused.
	for _, size := range cgroups.HugePageSizes() {
		limit := &cgroups.HugepageLimit{Pagesize: size}
		for what, n := range l.Hugepages {
			if pageSize(what) == size {
				limit.Limit = uint64(max(n, 0))
			}
		}
		r.HugetlbLimit = append(r.HugetlbLimit, limit)
	}
	return r
}

// pageSize is how the kernel's cgroups call the pages of a resource: 2MB for
// hugepages-2Mi. It is empty for what is no size.
func pageSize(what string) string {
	size, err := resource.ParseQuantity(strings.TrimPrefix(what, corev1.ResourceHugePagesPrefix))
	if err != nil {
		return ""
	}
	units := []string{"B", "KB", "MB", "GB"}
	n, unit := size.Value(), 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return resource.NewQuantity(n, resource.DecimalSI).String() + units[unit]
}
