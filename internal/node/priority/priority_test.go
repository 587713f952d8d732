package priority

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func pod(edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{}
	p.Spec.Containers = []corev1.Container{{Name: "a"}}
	edit(p)
	return p
}

func number(n int32) *int32 { return &n }

func TestPriorities(t *testing.T) {
	for _, tt := range []struct {
		name     string
		pod      *corev1.Pod
		priority int32
		critical bool
	}{
		{"nothing said", pod(func(*corev1.Pod) {}), 0, false},
		{"from an API server", pod(func(p *corev1.Pod) { p.Annotations = map[string]string{SourceAnnotation: "api"} }), 0, false},
		{"static", pod(func(p *corev1.Pod) { p.Annotations = map[string]string{SourceAnnotation: "file"} }), 0, true},
		{"mirror", pod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{SourceAnnotation: "api", MirrorAnnotation: "x"}
		}), 0, true},
		{"just below", pod(func(p *corev1.Pod) { p.Spec.Priority = number(1_999_999_999) }), 1_999_999_999, false},
		{"critical", pod(func(p *corev1.Pod) { p.Spec.Priority = number(2_000_000_000) }), 2_000_000_000, true},
		{"class of the node", pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }), 2_000_001_000, true},
		{"class of the cluster", pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }), 2_000_000_000, true},
		{"a resolved class", pod(func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority = "system-node-critical", number(7)
		}), 7, false},
		{"unknown class", pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "gold" }), 0, false},
	} {
		if got := Of(tt.pod); got != tt.priority {
			t.Errorf("%s: priority %d, want %d", tt.name, got, tt.priority)
		}
		if got := Critical(tt.pod); got != tt.critical {
			t.Errorf("%s: critical %t, want %t", tt.name, got, tt.critical)
		}
	}
}

func TestWhoMayDisplaceWhom(t *testing.T) {
	static := pod(func(p *corev1.Pod) { p.Annotations = map[string]string{SourceAnnotation: "file"} })
	high := pod(func(p *corev1.Pod) { p.Spec.Priority = number(10) })
	low := pod(func(*corev1.Pod) {})
	for _, tt := range []struct {
		name string
		a, b *corev1.Pod
		want bool
	}{
		{"critical before higher", static, high, true},
		{"higher before lower", high, low, true},
		{"lower after higher", low, high, false},
		{"equals", low, low, false},
		{"critical equals", static, static, false},
	} {
		if got := Before(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestClass(t *testing.T) {
	both := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want corev1.PodQOSClass
	}{
		{"nothing", pod(func(*corev1.Pod) {}), corev1.PodQOSBestEffort},
		{"containers", pod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = both }), corev1.PodQOSGuaranteed},
		{"the pod's own", pod(func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Limits: both, Requests: both} }), corev1.PodQOSGuaranteed},
		{"the pod's own before the containers'", pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = both
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu}
		}), corev1.PodQOSBurstable},
		{"told", pod(func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable }), corev1.PodQOSBurstable},
	} {
		if got := Class(tt.pod); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
