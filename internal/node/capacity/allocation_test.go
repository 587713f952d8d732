package capacity

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func sized(requests, limits string) corev1.ResourceRequirements {
	var out corev1.ResourceRequirements
	if requests != "" {
		out.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(requests)}
	}
	if limits != "" {
		out.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limits)}
	}
	return out
}

func ofTwo(init, app corev1.ResourceRequirements) *corev1.Pod {
	p := &corev1.Pod{}
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: init}}
	p.Spec.Containers = []corev1.Container{{Name: "a", Resources: app}}
	return p
}

// TestAllocation is kept as JSON and put over a pod that asks for something else by now.
func TestAllocation(t *testing.T) {
	old, now := ofTwo(sized("1", ""), sized("1", "2")), ofTwo(sized("", ""), sized("3", ""))
	text, err := json.Marshal(AllocationOf(old))
	if err != nil {
		t.Fatal(err)
	}
	var a Allocation
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	if !a.Equal(AllocationOf(old)) || a.Of(old) != old {
		t.Errorf("%s is not what it was made from", text)
	}
	got := a.Of(now)
	if !AllocationOf(got).Equal(a) || !AllocationOf(now).Equal(AllocationOf(ofTwo(sized("", ""), sized("3", "")))) {
		t.Errorf("got %+v, and the pod itself has %+v", got.Spec, now.Spec)
	}
	none, err := json.Marshal(AllocationOf(&corev1.Pod{}))
	if err != nil || string(none) != "{}" {
		t.Errorf("%s, %v", none, err)
	}
}

func TestLarger(t *testing.T) {
	for name, tt := range map[string]struct{ a, b, want corev1.ResourceRequirements }{
		"more":            {sized("1", "2"), sized("2", "3"), sized("2", "3")},
		"less":            {sized("2", "3"), sized("1", "2"), sized("2", "3")},
		"mixed":           {sized("2", "3"), sized("1", "4"), sized("2", "4")},
		"a limit is gone": {sized("1", "2"), sized("1", ""), sized("1", "")},
		"a limit is new":  {sized("1", ""), sized("1", "1"), sized("1", "")},
		"all is gone":     {sized("1", "1"), sized("", ""), sized("1", "")},
		"all is new":      {sized("", ""), sized("1", "1"), sized("1", "")},
	} {
		t.Run(name, func(t *testing.T) {
			got := AllocationOf(ofTwo(sized("", ""), tt.a)).Larger(AllocationOf(ofTwo(sized("", ""), tt.b)))
			if !got.Equal(AllocationOf(ofTwo(sized("", ""), tt.want))) {
				t.Errorf("got %+v, want %+v", got.Containers["a"], tt.want)
			}
		})
	}
}
