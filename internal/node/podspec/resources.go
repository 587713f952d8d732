package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
)

// The kubelet's numbers.
const (
	cpuPeriod     = 100_000       // us
	minQuota      = 1_000         // us, what the kernel takes
	maxMilli      = 1_000_000_000 // a million CPUs: keeps products within 64 bits
	minShares     = 2
	maxShares     = 262_144
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// Resources are the cgroup values of a container.
func Resources(c *Context, ct *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits := ct.Resources.Limits
	out := &runtimeapi.LinuxContainerResources{
		CpuPeriod:          cpuPeriod,
		CpuShares:          shares(cpuRequest(ct)),
		CpuQuota:           quota(milli(limits.Cpu())),
		MemoryLimitInBytes: limits.Memory().Value(),
		OomScoreAdj:        oomScore(c, ct),
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

// cpuRequest is in thousandths of a CPU. A limit without a request is one.
func cpuRequest(ct *corev1.Container) int64 {
	if q, ok := ct.Resources.Requests[corev1.ResourceCPU]; ok {
		return milli(&q)
	}
	return milli(ct.Resources.Limits.Cpu())
}

func memoryRequest(ct *corev1.Container) int64 {
	if q, ok := ct.Resources.Requests[corev1.ResourceMemory]; ok {
		return q.Value()
	}
	return ct.Resources.Limits.Memory().Value()
}

func shares(n int64) int64 {
	return min(max(n*1024/1000, minShares), maxShares)
}

// quota is us per period, 0 for no limit.
func quota(n int64) int64 {
	if n == 0 {
		return 0
	}
	return max(n*cpuPeriod/1000, minQuota)
}

// QOS is the class of service that the pod's requests and limits give it.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	any, guaranteed := false, true
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			ct := &list[i]
			limits := ct.Resources.Limits
			cpu, memory := milli(limits.Cpu()), limits.Memory().Value()
			any = any || cpuRequest(ct) > 0 || memoryRequest(ct) > 0
			guaranteed = guaranteed && cpu > 0 && memory > 0 && cpu == cpuRequest(ct) && memory == memoryRequest(ct)
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// oomScore spares what asked for its memory, and the more it asked for.
func oomScore(c *Context, ct *corev1.Container) int64 {
	switch QOS(c.Pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	if c.Node.MemoryBytes <= 0 {
		return oomBestEffort - 1
	}
	share := float64(memoryRequest(ct)) / float64(c.Node.MemoryBytes)
	score := 1000 - int64(1000*share)
	return min(max(score, 1000+oomGuaranteed), oomBestEffort-1)
}

func overhead(o corev1.ResourceList) *runtimeapi.LinuxContainerResources {
	if len(o) == 0 {
		return nil
	}
	return &runtimeapi.LinuxContainerResources{
		CpuPeriod: cpuPeriod, CpuShares: shares(milli(o.Cpu())), CpuQuota: quota(milli(o.Cpu())),
		MemoryLimitInBytes: o.Memory().Value(),
	}
}

// amounts are what a container, or several, ask for.
type amounts struct{ request, cpu, memory int64 }

func (a amounts) plus(b amounts) amounts {
	return amounts{a.request + b.request, a.cpu + b.cpu, a.memory + b.memory}
}

func (a amounts) most(b amounts) amounts {
	return amounts{max(a.request, b.request), max(a.cpu, b.cpu), max(a.memory, b.memory)}
}

// podResources are what the containers take at most: all of them and the
// sidecars together, or an init container with the sidecars that are there
// before it (KEP-753). A limit counts only if every container has one.
func podResources(c *Context) *runtimeapi.LinuxContainerResources {
	allCPU, allMemory := true, true
	of := func(ct *corev1.Container) amounts {
		limits := ct.Resources.Limits
		allCPU = allCPU && !limits.Cpu().IsZero()
		allMemory = allMemory && !limits.Memory().IsZero()
		return amounts{cpuRequest(ct), milli(limits.Cpu()), limits.Memory().Value()}
	}
	var sidecars, init, all amounts
	for i := range c.Pod.Spec.InitContainers {
		ct := &c.Pod.Spec.InitContainers[i]
		if plan.Sidecar(ct) {
			sidecars = sidecars.plus(of(ct))
			continue
		}
		init = init.most(of(ct).plus(sidecars))
	}
	for i := range c.Pod.Spec.Containers {
		all = all.plus(of(&c.Pod.Spec.Containers[i]))
	}
	all = all.plus(sidecars).most(init)
	out := &runtimeapi.LinuxContainerResources{CpuPeriod: cpuPeriod, CpuShares: shares(all.request)}
	if allCPU {
		out.CpuQuota = quota(all.cpu)
	}
	if allMemory {
		out.MemoryLimitInBytes = all.memory
	}
	return out
}
