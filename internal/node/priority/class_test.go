package priority

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func class(name string, value int32, isDefault bool, policy *corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault, PreemptionPolicy: policy}
}

func TestResolve(t *testing.T) {
	never, lower := corev1.PreemptNever, corev1.PreemptLowerPriority
	own := map[string]*schedulingv1.PriorityClass{"gold": class("gold", 1000, false, nil), "calm": class("calm", 5, false, &never)}
	defaults := map[string]*schedulingv1.PriorityClass{"gold": class("gold", 1000, true, nil), "low": class("low", -10, true, &never)}
	for _, tt := range []struct {
		name    string
		spec    corev1.PodSpec
		classes map[string]*schedulingv1.PriorityClass
		class   string // with the priority and the policy, unless it is an error
		value   int32
		policy  corev1.PreemptionPolicy
		wrong   string
	}{
		{name: "of its own", spec: corev1.PodSpec{PriorityClassName: "gold"}, classes: own, class: "gold", value: 1000, policy: lower},
		{name: "that never preempts", spec: corev1.PodSpec{PriorityClassName: "calm"}, classes: own, class: "calm", value: 5, policy: never},
		{name: "the same value", spec: corev1.PodSpec{PriorityClassName: "gold", Priority: number(1000), PreemptionPolicy: &lower}, classes: own, class: "gold", value: 1000, policy: lower},
		{name: "of the system", spec: corev1.PodSpec{PriorityClassName: "system-node-critical"}, class: "system-node-critical", value: 2_000_001_000, policy: lower},
		{name: "the lowest default", spec: corev1.PodSpec{}, classes: defaults, class: "low", value: -10, policy: never},
		{name: "no class", spec: corev1.PodSpec{Priority: number(7)}, classes: own, value: 7},
		{name: "none that there is", spec: corev1.PodSpec{PriorityClassName: "silver"}, classes: own, wrong: "there is no PriorityClass silver; add it"},
		{name: "another value", spec: corev1.PodSpec{PriorityClassName: "gold", Priority: number(1)}, classes: own, wrong: "spec.priority: 1 is not the value of its PriorityClass gold, 1000"},
		{name: "another value than the default's", spec: corev1.PodSpec{Priority: number(1)}, classes: defaults, wrong: "PriorityClass low, -10"},
		{name: "another policy", spec: corev1.PodSpec{PriorityClassName: "gold", PreemptionPolicy: &never}, classes: own, wrong: "spec.preemptionPolicy: Never is not that of its PriorityClass gold, PreemptLowerPriority"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Resolve(&tt.spec, tt.classes)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%v", err)
				}
				return
			}
			p := &corev1.Pod{Spec: tt.spec}
			if err != nil || p.Spec.PriorityClassName != tt.class || Of(p) != tt.value || tt.policy != "" && *p.Spec.PreemptionPolicy != tt.policy || Waits(p) != (tt.policy == never) {
				t.Errorf("%v: %+v", err, p.Spec)
			}
		})
	}
}
