package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/manifest/fields"
)

// checkWhole checks what a pod asks for as a whole (KEP-2837), with the defaults that an API
// server gives it.
func checkWhole(f *faults, path string, pod *corev1.Pod) {
	if pod.Spec.Resources == nil {
		return
	}
	before := len(*f)
	whole := capacity.Defaulted(pod).DeepCopy()
	capacity.DefaultWhole(whole)
	r := whole.Spec.Resources
	for list, amounts := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for name := range amounts {
			if !resource.IsSupportedPodLevelResource(name) {
				f.add(fields.Below(path+"."+list, string(name)), "is nothing that a pod asks for as a whole; ask for it in a container")
			}
		}
	}
	if len(r.Claims) > 0 {
		f.add(path+".claims", "belong to containers, and not to the pod as a whole")
	}
	c := containerCheck{faults: f}
	c.checkResources(path, *r)
	if len(*f) > before {
		return // sums of these say nothing
	}
	for name, sum := range resource.AggregateContainerRequests(whole, resource.PodResourcesOptions{}) {
		if q, ok := r.Requests[name]; ok && sum.Cmp(q) > 0 {
			f.add(fields.Below(path+".requests", string(name)), "%s is less than what its containers ask for together, %s", q.String(), sum.String())
		}
	}
	for name, sum := range resource.AggregateContainerLimits(whole, resource.PodResourcesOptions{}) {
		if q, ok := r.Limits[name]; ok && isPages(name) && sum.Cmp(q) > 0 {
			f.add(fields.Below(path+".limits", string(name)), "%s is less than the limits of its containers together, %s", q.String(), sum.String())
		}
	}
	for i := range whole.Spec.Containers {
		ct := &whole.Spec.Containers[i]
		for name, limit := range ct.Resources.Limits {
			if q, ok := r.Limits[name]; ok && limit.Cmp(q) > 0 {
				f.add(fmt.Sprintf("%s.limits.%s", path, name), "%s is less than the limit of container %s, %s", q.String(), ct.Name, limit.String())
			}
		}
	}
}
