package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(of ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(of); i += 2 {
		out[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
	}
	return out
}

func TestDefaultWhole(t *testing.T) {
	for name, tt := range map[string]struct {
		limits, requests corev1.ResourceList // of the pod
		first, second    corev1.ResourceRequirements
		wantL, wantR     corev1.ResourceList
	}{
		"limits alone":                {limits: list("cpu", "2", "memory", "1Gi"), wantL: list("cpu", "2", "memory", "1Gi"), wantR: list("cpu", "2", "memory", "1Gi")},
		"requests alone":              {requests: list("cpu", "1"), first: corev1.ResourceRequirements{Requests: list("memory", "1Gi")}, wantR: list("cpu", "1")},
		"what containers ask for":     {limits: list("cpu", "2"), first: corev1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "1Mi")}, second: corev1.ResourceRequirements{Limits: list("cpu", "200m")}, wantL: list("cpu", "2"), wantR: list("cpu", "300m", "memory", "1Mi")},
		"not what nobody asks so":     {limits: list("cpu", "2"), first: corev1.ResourceRequirements{Requests: list("ephemeral-storage", "1Mi")}, wantL: list("cpu", "2"), wantR: list("cpu", "2")},
		"huge pages of containers":    {limits: list("cpu", "1"), first: corev1.ResourceRequirements{Limits: list("hugepages-2Mi", "4Mi")}, second: corev1.ResourceRequirements{Limits: list("hugepages-2Mi", "2Mi")}, wantL: list("cpu", "1", "hugepages-2Mi", "6Mi"), wantR: list("cpu", "1", "hugepages-2Mi", "6Mi")},
		"nothing":                     {first: corev1.ResourceRequirements{Limits: list("cpu", "1")}},
		"what is said stays as it is": {limits: list("cpu", "2"), requests: list("cpu", "1"), first: corev1.ResourceRequirements{Requests: list("cpu", "500m")}, wantL: list("cpu", "2"), wantR: list("cpu", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: tt.first}, {Resources: tt.second}}}}
			pod.Spec.Resources = &corev1.ResourceRequirements{Limits: tt.limits, Requests: tt.requests}
			before := pod.Spec.Containers[1].Resources.DeepCopy()
			DefaultWhole(pod)
			if r := pod.Spec.Resources; !equality.Semantic.DeepEqual(r.Limits, tt.wantL) || !equality.Semantic.DeepEqual(r.Requests, tt.wantR) {
				t.Errorf("%+v", r)
			}
			if !equality.Semantic.DeepEqual(*before, pod.Spec.Containers[1].Resources) {
				t.Error("a container was changed")
			}
		})
	}
	DefaultWhole(&corev1.Pod{})
}
