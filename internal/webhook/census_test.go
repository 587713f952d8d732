package webhook_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the caches have is counted, pods that the scheduler found no node for
// included, and a pod that never was counted is not.
func TestCensusOfACluster(t *testing.T) {
	api := cluster(t)
	gvisor, kata := class("gvisor"), class("kata")
	gvisor.Labels = map[string]string{"fairlead.run/isolation": "sandbox"}
	kata.Handler = "kata"
	api.Put(classes, gvisor)
	api.Put(classes, kata)
	api.Put(nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"sandbox/kind": "gvisor", "handler.fairlead.run/runsc": "true", "handler.fairlead.run/kata": "false"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "sandbox", Effect: corev1.TaintEffectNoSchedule}}},
	})
	put := func(name, class, node, message string) {
		p := pod(of(class))
		p.Name, p.Spec.NodeName, p.Status.Phase = name, node, corev1.PodRunning
		if node == "" {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
		}
		api.Put(pods, p)
	}
	put("runs", "gvisor", "node-1", "")
	put("waits-for-room", "gvisor", "", "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
	put("waits-for-a-node", "kata", "", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")
	r := start(t, api, options())
	for _, line := range []string{
		`fairlead_cluster_runtimeclasses{runtime_handler="runsc",isolation="sandbox"} 1`,
		`fairlead_cluster_runtimeclasses_without_nodes{used="true"} 1`,
		`fairlead_cluster_class_nodes{class="gvisor",state="open"} 1`,
		`fairlead_cluster_class_nodes{class="kata",state="failing"} 0`,
		`fairlead_cluster_class_pods{class="gvisor",phase="Running"} 1`,
		`fairlead_cluster_class_unscheduled_pods{class="gvisor",reason="full"} 1`,
		`fairlead_cluster_class_unscheduled_pods{class="kata",reason="unsupported"} 1`,
		`fairlead_cluster_class_scheduling_failures_total{class="kata",reason="unsupported"} 1`,
		`fairlead_cluster_class_scheduling_failures_total{class="gvisor",reason="full"} 1`,
		`fairlead_cluster_handler_nodes{runtime_handler="kata",state="fails"} 1`,
		`fairlead_cluster_handlers_missing 1`,
		`fairlead_cluster_nodes{handlers="1"} 1`,
	} {
		if got := r.metric(line); got != line {
			t.Errorf("wanted %s, got %q", line, got)
		}
	}
}
