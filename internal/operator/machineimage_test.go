package operator

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/validate"
)

// boots gives nodes their operating system.
func (w *world) boots(system string, nodes ...string) {
	w.t.Helper()
	for _, name := range nodes {
		n := w.node(name)
		n.Status.NodeInfo.OSImage = system
		w.must(w.client.Status().Update(w.t.Context(), n))
	}
}

// Nodes with another operating system than their pool says get nothing, hold nobody up,
// and are named, also by an event. Those with another version are told of and installed on.
func TestOtherMachineImage(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 4)
	w.boots("Ubuntu 22.04.4 LTS", "a-000")
	w.boots("Debian GNU/Linux 12 (bookworm)", "a-001")
	w.boots("Ubuntu 20.04.6 LTS", "a-002")
	w.boots("Somebody's own Linux", "a-003")
	p := aPool("a", "gvisor")
	p.Spec.Provider, p.Spec.MachineImage.Version = "aws", "22.4.20240101"
	w.create(aPayload("gvisor", "1", "runsc"), p)
	w.settle()
	for node, want := range map[string]string{"a-000": all + " a pod", "a-001": nothing, "a-002": all + " a pod", "a-003": all + " a pod"} {
		if got := w.installed(node); got != want {
			t.Errorf("%s has %q, not %q", node, got, want)
		}
	}
	const says = "a-001 (Debian GNU/Linux 12 (bookworm) and not ubuntu)"
	w.wants("pool", w.condition(p, v1alpha1.ConditionReady), "False OtherMachineImage", "1 of its nodes", says, "correct machineImage")
	w.wants("version", w.condition(p, v1alpha1.ConditionValid), "True Warned", "spec.machineImage.version: 1 nodes have another version than 22.4.20240101: a-002 (Ubuntu 20.04.6 LTS)")
	w.wants("runtime", w.operation("gvisor-a"), "Error", "verified on 3 of 4 nodes", says, "ERR_CONFIGURATION_PROBLEM")
	var events corev1.EventList
	w.must(w.client.List(t.Context(), &events, client.InNamespace(home)))
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != "gvisor-a" || events.Items[0].Reason != "NodeMisfit" {
		t.Errorf("%+v", events.Items)
	} else {
		w.wants("event", events.Items[0].Message, says)
	}
	var sets appsv1.DaemonSetList
	w.must(w.client.List(t.Context(), &sets))
	for i := range sets.Items {
		args := sets.Items[i].Spec.Template.Spec.Containers[0].Args
		at := slices.Index(args, "--machine-image")
		if installs := sets.Items[i].Spec.Template.Labels[names.Work] == string(names.Install); (at > 0) != installs || installs && args[at+1] != "ubuntu" {
			t.Errorf("%s: %q", sets.Items[i].Name, args)
		}
	}
	w.boots("Ubuntu 22.04.4 LTS", "a-001", "a-002")
	w.settle()
	w.wants("pool", w.condition(p, v1alpha1.ConditionReady), "True Installed: 1 runtimes are on 4 nodes")
	w.wants("version", w.condition(p, v1alpha1.ConditionValid), "True Checked")
}

// What was verified on a node stays there, whatever somebody says of its image then.
func TestMachineImageThatChanges(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 2)
	w.boots("Ubuntu 22.04.4 LTS", "a-000", "a-001")
	p := aPool("a", "gvisor")
	w.create(aPayload("gvisor", "1", "runsc"), p)
	w.settle()
	w.change(p, func() { p.Spec.MachineImage.Name = "debian" })
	w.settle()
	for _, node := range []string{"a-000", "a-001"} {
		if got := w.installed(node); got != all+" a pod" {
			t.Errorf("%s has %q", node, got)
		}
	}
	w.wants("pool", w.condition(p, v1alpha1.ConditionReady), "False OtherMachineImage", "2 of its nodes", "a-000 (Ubuntu 22.04.4 LTS and not debian)")
}

// Nodes with Windows get nothing, whoever chooses them: payloads are for Linux.
func TestNodesWithoutLinux(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 2)
	w.boots("Ubuntu 22.04.4 LTS", "a-000")
	n := w.node("a-001")
	n.Status.NodeInfo.OSImage, n.Status.NodeInfo.OperatingSystem = "Windows Server 2022 Datacenter", "windows"
	w.must(w.client.Status().Update(t.Context(), n))
	p := aPool("a", "gvisor")
	w.create(aPayload("gvisor", "1", "runsc"), p)
	w.settle()
	for node, want := range map[string]string{"a-000": all + " a pod", "a-001": nothing} {
		if got := w.installed(node); got != want {
			t.Errorf("%s has %q, not %q", node, got, want)
		}
	}
	const says = "a-001 (Windows Server 2022 Datacenter and not ubuntu)"
	w.wants("pool", w.condition(p, v1alpha1.ConditionReady), "False OtherMachineImage", "1 of its nodes", says)
	w.wants("runtime", w.operation("gvisor-a"), "Error", "verified on 1 of 2 nodes", says, "ERR_CONFIGURATION_PROBLEM")
	if says, _ := (validate.Machines{}).Misfit(n); says != "a-001 (Windows Server 2022 Datacenter and not linux)" {
		t.Errorf("without a pool: %q", says)
	}
}
