package cluster

import (
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The sentences are those of the scheduler of Kubernetes 1.36.
func TestVerdicts(t *testing.T) {
	for name, tt := range map[string]struct {
		node, reason, message string
		status                corev1.ConditionStatus
		want                  Verdict
	}{
		"nobody has tried":               {want: Unasked},
		"it has a node":                  {status: corev1.ConditionTrue, node: "n", want: Unasked},
		"a node, and what was before":    {status: corev1.ConditionFalse, node: "n", reason: corev1.PodReasonUnschedulable, message: "0/1 nodes are available: 1 Insufficient cpu.", want: Unasked},
		"gates":                          {status: corev1.ConditionFalse, reason: corev1.PodReasonSchedulingGated, message: "Scheduling is blocked due to non-empty scheduling gates", want: Gated},
		"memory":                         {status: corev1.ConditionFalse, reason: corev1.PodReasonUnschedulable, message: "0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.", want: Full},
		"pods":                           {status: corev1.ConditionFalse, reason: corev1.PodReasonUnschedulable, message: "0/1 nodes are available: 1 Too many pods.", want: Full},
		"labels":                         {status: corev1.ConditionFalse, reason: corev1.PodReasonUnschedulable, message: "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.", want: Unfit},
		"what preemption says of others": {status: corev1.ConditionFalse, reason: corev1.PodReasonUnschedulable, message: "0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: 1 Insufficient cpu.", want: Unfit},
		"no node at all":                 {status: corev1.ConditionFalse, reason: corev1.PodReasonUnschedulable, message: "no nodes available to schedule pods", want: Unfit},
		"an error":                       {status: corev1.ConditionFalse, reason: corev1.PodReasonSchedulerError, message: "plugin failed", want: Unfit},
		"a verdict without a sentence":   {status: corev1.ConditionFalse, want: Unfit},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: tt.node}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "Insufficient "}}
		if tt.status != "" {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: tt.status, Reason: tt.reason, Message: tt.message})
		}
		if got := verdictOf(p); got != tt.want {
			t.Errorf("%s: %d, wanted %d", name, got, tt.want)
		}
		brief := stripToBrief(p)
		if got := briefPod(brief); got.Verdict != tt.want || got.Verdict.Failed() != (tt.want == Full || tt.want == Unfit) {
			t.Errorf("%s, stripped: %+v, wanted %d", name, got, tt.want)
		}
		if n := len(brief.Status.Conditions); n > 1 || n == 1 && tt.want == Unasked {
			t.Errorf("%s: %d conditions are kept", name, n)
		}
	}
}

// A cluster has 100,000 pods. Their names and UIDs, 60 to 90 bytes, come on top.
func TestPodsAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(Pod{}); size > 160 {
		t.Errorf("a pod takes %d bytes", size)
	}
}
