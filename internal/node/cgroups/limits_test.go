package cgroups

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts reads pairs: "cpu", "1", "memory", "1Gi".
func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func TestPodLimits(t *testing.T) {
	const mi = 1 << 20
	half := container(amounts("cpu", "500m", "memory", "64Mi"), amounts("cpu", "1", "memory", "128Mi"))
	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		want Limits
	}{
		{
			"best effort",
			corev1.PodSpec{Containers: []corev1.Container{{}}},
			Limits{CPUShares: 2, CPUQuota: -1, Memory: -1},
		},
		{
			"guaranteed",
			corev1.PodSpec{Containers: []corev1.Container{container(nil, amounts("cpu", "2", "memory", "128Mi"))}},
			Limits{CPUShares: 2048, CPUQuota: 200_000, Memory: 128 * mi},
		},
		{
			"two containers together",
			corev1.PodSpec{Containers: []corev1.Container{half, half}},
			Limits{CPUShares: 1024, CPUQuota: 200_000, Memory: 256 * mi},
		},
		{
			"a limit that one lacks is none",
			corev1.PodSpec{Containers: []corev1.Container{half, container(amounts("cpu", "100m"), amounts("memory", "1Mi"))}},
			Limits{CPUShares: 614, CPUQuota: -1, Memory: 129 * mi},
		},
		{
			"an init container that needs more",
			corev1.PodSpec{Containers: []corev1.Container{half}, InitContainers: []corev1.Container{container(amounts("cpu", "2"), amounts("cpu", "2", "memory", "1Gi"))}},
			Limits{CPUShares: 2048, CPUQuota: 200_000, Memory: 1024 * mi},
		},
		{
			"a sidecar is there with both",
			corev1.PodSpec{Containers: []corev1.Container{half}, InitContainers: []corev1.Container{
				sidecar(half), container(amounts("cpu", "2"), amounts("cpu", "2", "memory", "1Gi")),
			}},
			Limits{CPUShares: 2560, CPUQuota: 300_000, Memory: 1152 * mi},
		},
		{
			"overhead",
			corev1.PodSpec{Containers: []corev1.Container{half}, Overhead: amounts("cpu", "250m", "memory", "100Mi")},
			Limits{CPUShares: 768, CPUQuota: 125_000, Memory: 228 * mi},
		},
		{
			"the pod's own",
			corev1.PodSpec{Containers: []corev1.Container{{}}, Resources: &corev1.ResourceRequirements{
				Requests: amounts("cpu", "1", "memory", "1Gi"), Limits: amounts("cpu", "2", "memory", "2Gi"),
			}},
			Limits{CPUShares: 1024, CPUQuota: 200_000, Memory: 2048 * mi},
		},
		{
			"hugepages",
			corev1.PodSpec{Containers: []corev1.Container{container(nil, amounts("cpu", "1", "memory", "1Gi", "hugepages-2Mi", "4Mi"))}},
			Limits{CPUShares: 1024, CPUQuota: 100_000, Memory: 1024 * mi, Hugepages: map[string]int64{"hugepages-2Mi": 4 * mi}},
		},
		{
			"next to nothing",
			corev1.PodSpec{Containers: []corev1.Container{container(amounts("cpu", "1m"), amounts("cpu", "1m"))}},
			Limits{CPUShares: 2, CPUQuota: 1000, Memory: -1},
		},
		{
			"more than there is",
			corev1.PodSpec{Containers: []corev1.Container{container(amounts("cpu", "9E"), nil)}},
			Limits{CPUShares: 262_144, CPUQuota: -1, Memory: -1},
		},
	} {
		tt.want.Pids = -1
		if got := PodLimits(&corev1.Pod{Spec: tt.spec}); !got.equal(tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestPageSizes(t *testing.T) {
	for what, want := range map[string]string{
		"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB", "hugepages-16Gi": "16GB", "hugepages-x": "",
	} {
		if got := pageSize(what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}
