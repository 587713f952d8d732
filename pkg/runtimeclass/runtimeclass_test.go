package runtimeclass

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	meta        = metav1.ObjectMeta{Name: "sandboxed", Labels: map[string]string{"a": "b"}}
	fixed       = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
	tolerations = []corev1.Toleration{{Key: "sandbox", Operator: "Exists"}}
	selector    = map[string]string{"runtime": "gvisor"}
)

func TestConvertKeepsEveryField(t *testing.T) {
	alpha := &nodev1alpha1.RuntimeClass{ObjectMeta: meta, Spec: nodev1alpha1.RuntimeClassSpec{
		RuntimeHandler: "gvisor",
		Overhead:       &nodev1alpha1.Overhead{PodFixed: fixed},
		Scheduling:     &nodev1alpha1.Scheduling{NodeSelector: selector, Tolerations: tolerations},
	}}
	beta := &nodev1beta1.RuntimeClass{
		ObjectMeta: meta, Handler: "gvisor",
		Overhead:   &nodev1beta1.Overhead{PodFixed: fixed},
		Scheduling: &nodev1beta1.Scheduling{NodeSelector: selector, Tolerations: tolerations},
	}
	for name, got := range map[string]*nodev1.RuntimeClass{"v1alpha1": FromV1alpha1(alpha), "v1beta1": FromV1beta1(beta)} {
		if got.APIVersion != "node.k8s.io/v1" || got.Kind != "RuntimeClass" {
			t.Errorf("%s: type is %s %s", name, got.APIVersion, got.Kind)
		}
		if got.Name != "sandboxed" || got.Handler != "gvisor" || got.Labels["a"] != "b" {
			t.Errorf("%s: lost name, handler or labels: %+v", name, got)
		}
		if q := got.Overhead.PodFixed["memory"]; q.String() != "64Mi" {
			t.Errorf("%s: overhead is %s", name, q.String())
		}
		if got.Scheduling.NodeSelector["runtime"] != "gvisor" || got.Scheduling.Tolerations[0].Key != "sandbox" {
			t.Errorf("%s: scheduling is %+v", name, got.Scheduling)
		}
		got.Labels["a"], got.Scheduling.NodeSelector["runtime"] = "changed", "changed"
	}
	if meta.Labels["a"] != "b" || selector["runtime"] != "gvisor" {
		t.Error("the result shares maps with its input")
	}
}

func TestConvertWithoutOptionalParts(t *testing.T) {
	got := FromV1alpha1(&nodev1alpha1.RuntimeClass{Spec: nodev1alpha1.RuntimeClassSpec{RuntimeHandler: "runc"}})
	if got.Overhead != nil || got.Scheduling != nil {
		t.Errorf("made up %+v %+v", got.Overhead, got.Scheduling)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name  string
		class nodev1.RuntimeClass
		want  string // part of the only fault; empty means none
	}{
		{"sound", nodev1.RuntimeClass{ObjectMeta: meta, Handler: "gvisor"}, ""},
		{"dots in the name", nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}, Handler: "x"}, ""},
		{"no name", nodev1.RuntimeClass{Handler: "x"}, "metadata.name: is required"},
		{"namespace", nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}, Handler: "x"}, "metadata.namespace"},
		{"no handler", nodev1.RuntimeClass{ObjectMeta: meta}, "handler: is required"},
		{"handler in capitals", nodev1.RuntimeClass{ObjectMeta: meta, Handler: "RunC"}, "handler: "},
		{"handler is a path", nodev1.RuntimeClass{ObjectMeta: meta, Handler: "../runc"}, "handler: "},
		{
			"negative overhead",
			nodev1.RuntimeClass{ObjectMeta: meta, Handler: "x", Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("-1")}}},
			"overhead.podFixed[cpu]",
		},
		{
			"selector",
			nodev1.RuntimeClass{ObjectMeta: meta, Handler: "x", Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"a b": "c"}}},
			"scheduling.nodeSelector[a b]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			faults := Validate(&tt.class)
			if tt.want == "" {
				if len(faults) > 0 {
					t.Fatalf("unexpected faults: %q", faults)
				}
				return
			}
			if len(faults) != 1 || !strings.Contains(faults[0], tt.want) {
				t.Fatalf("got %q, want one with %q", faults, tt.want)
			}
		})
	}
}
