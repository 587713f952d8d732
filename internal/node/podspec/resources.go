package podspec

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

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
	cpu, memory := limit(c.Pod, ct, corev1.ResourceCPU), limit(c.Pod, ct, corev1.ResourceMemory)
	out := &runtimeapi.LinuxContainerResources{
		CpuPeriod:          cpuPeriod,
		CpuShares:          shares(cpuShare(c.Pod, ct)),
		CpuQuota:           quota(milli(&cpu)),
		MemoryLimitInBytes: memory.Value(),
		OomScoreAdj:        oomScore(c, ct),
		HugepageLimits:     hugepages(c, ct),
	}
	unified := map[string]string{}
	if c.Node.Swap.Counted {
		unified["memory.swap.max"] = strconv.FormatInt(swap(c, ct), 10)
	}
	if c.Node.GroupOOM {
		unified["memory.oom.group"] = "1"
	}
	if len(unified) > 0 {
		out.Unified = unified
	}
	return out
}

// limit is a container's, or the pod's where the container has none (KEP-2837).
func limit(pod *corev1.Pod, ct *corev1.Container, name corev1.ResourceName) resource.Quantity {
	if q := ct.Resources.Limits[name]; !q.IsZero() {
		return q
	}
	if pod.Spec.Resources != nil {
		return pod.Spec.Resources.Limits[name]
	}
	return resource.Quantity{}
}

// hugepages are the limits for each size that the node has or the container asks for. It
// may use those of the pod of a size of which it has none (KEP-2837).
func hugepages(c *Context, ct *corev1.Container) []*runtimeapi.HugepageLimit {
	limits := map[string]uint64{}
	for _, size := range c.Node.HugePageSizes {
		limits[size] = 0
	}
	all := corev1.ResourceList{}
	if r := c.Pod.Spec.Resources; r != nil {
		maps.Copy(all, r.Limits)
	}
	maps.Copy(all, ct.Resources.Limits)
	for name, q := range all {
		size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if bytes, err := resource.ParseQuantity(size); ok && err == nil {
			limits[pageSize(bytes.Value())] = uint64(max(q.Value(), 0))
		}
	}
	var out []*runtimeapi.HugepageLimit
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: size, Limit: limits[size]})
	}
	return out
}

// pageSize is written as the kernel names its files: 2MB for 2Mi.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB"}
	i := 0
	for ; i < len(units)-1 && bytes >= 1024 && bytes%1024 == 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

// swap is how much a container may use, in bytes: in proportion to the memory that
// it asks for, if it may use more than that, and no more than the node has.
func swap(c *Context, ct *corev1.Container) int64 {
	request, top := memoryRequest(ct), limit(c.Pod, ct, corev1.ResourceMemory)
	critical := Critical(c.Pod) && !c.Node.Swap.Manifests || prior(c.Pod)
	if !c.Node.Swap.Limited || c.Node.MemoryBytes <= 0 || request > c.Node.MemoryBytes || QOS(c.Pod) != corev1.PodQOSBurstable || critical || request == top.Value() {
		return 0
	}
	return int64(float64(request) / float64(c.Node.MemoryBytes) * float64(c.Node.Swap.Bytes))
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

// cpuShare is what a container asks for, or its limit, or the pod's limit where it says
// neither, as for a kubelet: it would else have next to nothing beside the others.
func cpuShare(pod *corev1.Pod, ct *corev1.Container) int64 {
	if q, ok := ct.Resources.Requests[corev1.ResourceCPU]; ok {
		return milli(&q)
	}
	q := limit(pod, ct, corev1.ResourceCPU)
	return milli(&q)
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

// QOS is the class of service that the pod's requests and limits give it: its own,
// if it has any (KEP-2837), else those of all its containers.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return class([]corev1.Container{{Resources: *r}})
	}
	return class(pod.Spec.Containers, pod.Spec.InitContainers)
}

func class(lists ...[]corev1.Container) corev1.PodQOSClass {
	any, guaranteed := false, true
	for _, list := range lists {
		for i := range list {
			ct := &list[i]
			limits := ct.Resources.Limits
			cpu, memory := milli(limits.Cpu()), limits.Memory().Value()
			any = any || cpuRequest(ct) > 0 || memoryRequest(ct) > 0 || cpu > 0 || memory > 0
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

// From this priority on a pod is one that the cluster cannot do without.
const systemCritical = 2_000_000_000

// nodeCritical is the class of pods that a node cannot do without.
const nodeCritical = "system-node-critical"

// Critical says that other pods make way for this one, and that it is the last to
// be evicted: by its priority, or as it is the node's own.
func Critical(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	source := pod.Annotations[annotationSource]
	return prior(pod) || mirror || source != "" && source != "api"
}

// prior says that the pod is critical by its priority.
func prior(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// annotationSource says where the node has a pod from, if not from the API server.
const annotationSource = "kubernetes.io/config.source"

// oomScore spares what asked for its memory, and the more it asked for. A sidecar is
// spared at least as much as the container that is spared least (KEP-753).
func oomScore(c *Context, ct *corev1.Container) int64 {
	if c.Pod.Spec.PriorityClassName == nodeCritical && Critical(c.Pod) {
		return oomGuaranteed
	}
	switch QOS(c.Pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	if c.Node.MemoryBytes <= 0 {
		return oomBestEffort - 1
	}
	request := memoryRequest(ct) + spare(c.Pod)
	if plan.Sidecar(ct) && len(c.Pod.Spec.Containers) > 0 {
		least := int64(math.MaxInt64)
		for i := range c.Pod.Spec.Containers {
			least = min(least, memoryRequest(&c.Pod.Spec.Containers[i])+spare(c.Pod))
		}
		request = max(request, least)
	}
	share := float64(request) / float64(c.Node.MemoryBytes)
	score := 1000 - int64(1000*share)
	return min(max(score, 1000+oomGuaranteed), oomBestEffort-1)
}

// spare is each container's part of the memory that the pod asks for beyond what its
// containers and sidecars do (KEP-2837).
func spare(pod *corev1.Pod) int64 {
	r := pod.Spec.Resources
	if r == nil || r.Requests.Memory().IsZero() {
		return 0
	}
	left, n := r.Requests.Memory().Value(), int64(0)
	for i := range pod.Spec.Containers {
		left, n = left-memoryRequest(&pod.Spec.Containers[i]), n+1
	}
	for i := range pod.Spec.InitContainers {
		if ct := &pod.Spec.InitContainers[i]; plan.Sidecar(ct) {
			left, n = left-memoryRequest(ct), n+1
		}
	}
	return max(left, 0) / max(n, 1)
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
	if r := c.Pod.Spec.Resources; r != nil {
		own(out, r)
	}
	return out
}

// own puts what a pod asks for as a whole over the sum of its containers (KEP-2837).
func own(out *runtimeapi.LinuxContainerResources, r *corev1.ResourceRequirements) {
	if n := cpuRequest(&corev1.Container{Resources: *r}); n > 0 {
		out.CpuShares = shares(n)
	}
	if q := r.Limits.Cpu(); !q.IsZero() {
		out.CpuQuota = quota(milli(q))
	}
	if q := r.Limits.Memory(); !q.IsZero() {
		out.MemoryLimitInBytes = q.Value()
	}
}
