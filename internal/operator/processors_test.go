package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/api/v1alpha1"
)

// What Node Feature Discovery has found on the nodes of a pool goes before the name of
// their machine type; what it has not found refuses nothing.
func TestProcessorsGoBeforeNames(t *testing.T) {
	const found = "feature.node.kubernetes.io/cpu-cpuid."
	w := newWorld(t)
	w.create(aPayload("kata-containers", "1", "kata-qemu"))
	w.fleet("a", 1)
	label := func(labels ...string) {
		t.Helper()
		n := w.node("a-000")
		n.Labels[corev1.LabelArchStable] = "amd64"
		for _, one := range labels {
			n.Labels[one] = "true"
		}
		w.must(w.client.Update(t.Context(), n))
		w.settle()
	}
	p := aPool("a", "kata")
	p.Spec.Provider, p.Spec.MachineType = "aws", "m5.large"
	w.create(p)
	label(found + "AVX")
	w.wants("by its name", w.condition(p, v1alpha1.ConditionValid), "False Invalid: spec.machineType: Invalid value: \"m5.large\": machines of type m5.large cannot run virtual machines")
	w.change(p, func() { p.Spec.MachineType = "m5.metal" })
	w.settle()
	w.wants("doubtful", w.condition(p, v1alpha1.ConditionValid), "True Warned", "spec.machineType: Node Feature Discovery has found neither VMX nor SVM on a-000; turn nested virtualisation on for these machines if they have it; kata-containers cannot run on nodes without /dev/kvm")
	w.change(p, func() { p.Spec.MachineType = "m5.large" })
	label(found + "VMX")
	w.wants("by its nodes", w.condition(p, v1alpha1.ConditionValid), "True Checked: the pool can be acted on")
	w.wants("installed", w.condition(p, v1alpha1.ConditionReady), "True Installed: 1 runtimes are on 1 nodes")
}
