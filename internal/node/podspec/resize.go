package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pageBytes is what the kernel rounds limits of memory down to.
const pageBytes = 4096

// Resize asks a runtime to give a container that runs the resources of its spec. A
// limit that is gone is said to be: for the CRI zero means to leave it as it is.
func Resize(c *Context, ct *corev1.Container, id string) *runtimeapi.UpdateContainerResourcesRequest {
	r := Resources(c, ct)
	if r.CpuQuota == 0 {
		r.CpuQuota = -1
	}
	if r.MemoryLimitInBytes == 0 {
		r.MemoryLimitInBytes = -1
	}
	return &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r}
}

// ResizeSandbox tells a runtime what the containers of a pod have together by now.
func ResizeSandbox(c *Context, id string) *runtimeapi.UpdatePodSandboxResourcesRequest {
	return &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Overhead: overhead(c.Overhead), Resources: podResources(c)}
}

// ResourcesOf says which resources a container runs with, in the words of its spec:
// as they are written there, where the runtime has what they come to, and else what
// the runtime's values stand for. Values are compared as the runtime counts, in
// shares and quotas, which are coarser than the spec: without that a pod with 333m
// would be resized for ever. A request for memory is none of a container's limits
// and taken as the spec has it. It is nil if the runtime does not tell.
func ResourcesOf(c *Context, ct *corev1.Container, s *runtimeapi.ContainerStatus) *corev1.ResourceRequirements {
	has := s.GetResources().GetLinux()
	if has == nil || has.GetCpuShares() == 0 && has.GetCpuQuota() == 0 && has.GetMemoryLimitInBytes() == 0 {
		return nil
	}
	want, out := Resources(c, ct), ct.Resources.DeepCopy()
	if has.GetCpuShares() != 0 && has.GetCpuShares() != want.GetCpuShares() {
		put(&out.Requests, corev1.ResourceCPU, resource.NewMilliQuantity(milliOfShares(has.GetCpuShares()), resource.DecimalSI))
	}
	if n := milliOfQuota(has.GetCpuQuota(), has.GetCpuPeriod()); n != milliOfQuota(want.GetCpuQuota(), want.GetCpuPeriod()) {
		put(&out.Limits, corev1.ResourceCPU, resource.NewMilliQuantity(n, resource.DecimalSI))
	}
	if n, w := max(has.GetMemoryLimitInBytes(), 0), want.GetMemoryLimitInBytes(); n != w && (n == 0 || n != w/pageBytes*pageBytes) {
		put(&out.Limits, corev1.ResourceMemory, resource.NewQuantity(n, resource.BinarySI))
	}
	return out
}

// put sets a quantity, or takes it away if it is zero.
func put(list *corev1.ResourceList, name corev1.ResourceName, q *resource.Quantity) {
	if q.IsZero() {
		delete(*list, name)
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = *q
}

// milliOfShares rounds up, and is nothing for the least that there is.
func milliOfShares(n int64) int64 {
	if n <= minShares {
		return 0
	}
	return (n*1000 + 1023) / 1024
}

func milliOfQuota(quota, period int64) int64 {
	if quota <= 0 {
		return 0
	}
	if period <= 0 {
		period = cpuPeriod
	}
	return int64(float64(quota) * 1000 / float64(period))
}
