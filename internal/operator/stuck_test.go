package operator

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// begun is how many nodes of a fleet are begun with gVisor, and on how many it is ready.
func (w *world) begun() (begun, ready int) {
	var all corev1.NodeList
	w.must(w.client.List(w.t.Context(), &all))
	for i := range all.Items {
		if all.Items[i].Labels[names.Phase+"gvisor"] != "" {
			begun++
		}
		if all.Items[i].Labels[names.Ready+"gvisor"] != "" {
			ready++
		}
	}
	return begun, ready
}

// dies has a node not answer any more, from now on.
func (w *world) dies(name string) {
	n := w.node(name)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(w.now)}}
	w.lazy[name] = true
	w.must(w.client.Status().Update(w.t.Context(), n))
}

var full = &payload.InstallResult{State: payload.Refused, Reason: payload.NoSpace, Message: "the disk is full"}

// What an installation came to on a node is no refusal of its, also where the next attempt
// waits, or cannot undo it: the nodes after it are not to come to the same.
func TestSpoiltNodesHoldUpOthers(t *testing.T) {
	for _, reason := range []payload.Reason{payload.CheckFailed, payload.HandlerNotServed, payload.RestartFailed, payload.RuntimeUnavailable} {
		w, _ := pooled(t, 4)
		w.results["a-000"] = &payload.InstallResult{State: payload.Refused, Reason: reason, Message: "the last 1 attempts failed"}
		w.settle()
		if begun, _ := w.begun(); begun != 1 {
			t.Errorf("%s: %d nodes were begun", reason, begun)
		}
	}
}

// A node that dies while it is installed on for the first time, or refuses that, does not
// keep the runtime from all others, and is named.
func TestFirstInstallationsThatGetStuck(t *testing.T) {
	w, p := pooled(t, 8)
	w.lazy["a-000"] = true
	w.results["a-001"] = full
	w.settle()
	if begun, _ := w.begun(); begun != 1 {
		t.Fatalf("%d nodes were begun", begun)
	}
	w.dies("a-000")
	w.settle()
	if begun, _ := w.begun(); begun != 1 {
		t.Errorf("%d nodes were begun while the first may come back", begun)
	}
	got, err := w.nodes.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
	if err != nil || got.RequeueAfter != 30*time.Second {
		t.Errorf("nobody looks again: %+v %v", got, err)
	}
	w.watch = func() {
		if begun, ready := w.begun(); begun-ready > 3 {
			t.Errorf("%d nodes are worked on at once", begun-ready)
		}
	}
	w.now = w.now.Add(6 * time.Minute)
	w.settle()
	if begun, ready := w.begun(); begun != 8 || ready != 6 {
		t.Errorf("%d nodes are begun, and %d ready", begun, ready)
	}
	says := []string{"gvisor 1 was verified on 6 of 8 nodes; the others do not wait for a-000 (does not answer), a-001 (refused it)", "a-001: NoSpace"}
	w.wants("the runtime", w.operation("gvisor-a"), says...)
	w.wants("its condition", w.nodesReady("gvisor-a"), "False", says[0])
	w.wants("the pool", w.condition(p, "Ready"), "False", says[0])
	// The next release waits for a node that is away, as ever.
	w.release(aPayload("gvisor", "1"), "2", "runsc")
	w.settle()
	w.wants("the next release", w.operation("gvisor-a"), "gvisor 2 was verified on 0 of 8 nodes", "wait for their turn until these are ready: a-000 (does not answer)")
	// It comes back, or goes. One that refuses this release as well keeps it from nobody.
	w.must(w.client.Delete(t.Context(), w.node("a-000")))
	w.settle()
	w.wants("without it", w.operation("gvisor-a"), "gvisor 2 was verified on 6 of 7 nodes; the others do not wait for a-001 (refused it)")
	delete(w.results, "a-001")
	w.settle()
	w.wants("in the end", w.operation("gvisor-a"), "Succeeded", "gvisor 2 was verified on 7 of 7 nodes")
}

// What many nodes refuse is no accident, and goes on to no more of them.
func TestFewAreStuck(t *testing.T) {
	w, _ := pooled(t, 8)
	for i := range 6 {
		w.results[fmt.Sprintf("a-%03d", i)] = full
	}
	w.settle()
	if begun, ready := w.begun(); begun != 4 || ready != 0 {
		t.Errorf("%d nodes are begun, and %d ready; 3 are passed over, and 1 may be unavailable", begun, ready)
	}
	w.wants("the runtime", w.operation("gvisor-a"), "do not wait for a-000 (refused it), a-001 (refused it), a-002 (refused it); it failed on 4")
	clear(w.results)
	w.settle()
	w.wants("mended", w.operation("gvisor-a"), "Succeeded", "on 8 of 8 nodes")
}
