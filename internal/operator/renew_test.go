package operator

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
)

// installed is a pool whose nodes have release 1 of some types.
func installed(t *testing.T, n, most int, types ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.create(aPayload("gvisor", "1", "runsc"), aPayload("kata-containers", "1", "kata-qemu"))
	w.fleet("a", n)
	p := aPool("a", types...)
	p.Spec.MaxUnavailable = new(intstr.FromInt(most))
	w.create(p)
	w.settle()
	w.wants("before", w.condition(p, "Ready"), "True Installed")
	return w
}

// renewing are the nodes of which a pod is missing or not ready, and those of which all
// pods are of the release of now.
func (w *world) renewing(types ...string) (busy, done int) {
	w.t.Helper()
	var all corev1.NodeList
	w.must(w.client.List(w.t.Context(), &all))
	for i := range all.Items {
		unready, old := false, false
		for _, typ := range types {
			var ds appsv1.DaemonSet
			w.must(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: home, Name: "fairlead-" + typ + "-a"}, &ds))
			p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: ds.Name + "-" + all.Items[i].Name}}
			if !w.get(&p) || !nodes.Ready(&p) {
				unready = true
			} else if p.Annotations[names.AnnotationRevision] != ds.Spec.Template.Annotations[names.AnnotationRevision] {
				old = true
			}
		}
		if unready {
			busy++
		} else if !old {
			done++
		}
	}
	return busy, done
}

// Two releases that come at the same time, or one while the other is on its way, keep one
// pace.
func TestReleasesKeepOnePace(t *testing.T) {
	types := []string{"gvisor", "kata-containers"}
	w := installed(t, 12, 4, types...)
	peak := 0
	w.watch = func() {
		busy, _ := w.renewing(types...)
		peak = max(peak, busy)
	}
	gvisor, kata := aPayload("gvisor", "1"), aPayload("kata-containers", "1")
	w.release(gvisor, "2", "runsc")
	w.release(kata, "2", "kata-qemu")
	w.steps(5)
	w.release(kata, "3", "kata-qemu")
	w.settle()
	if peak > 4 || peak < 3 {
		t.Errorf("%d nodes were worked on at once, of 4", peak)
	}
	if _, done := w.renewing(types...); done != 12 {
		t.Errorf("%d nodes are done", done)
	}
	w.wants("after", w.condition(aPool("a"), "Ready"), "True Installed: 2 runtimes are on 12 nodes")
	w.wants("release", w.operation("kata-containers-a"), "kata-containers 3 was verified on 12 of 12 nodes")
}

// By caches that have not heard of what was deleted, nor of a node that has gone away, no
// more nodes have their turn, nor by a second operator that looks at the same time.
func TestReleaseByOldCaches(t *testing.T) {
	w := installed(t, 6, 3, "gvisor")
	w.release(aPayload("gvisor", "1"), "2", "runsc")
	w.reconcile(w.types[0], home, "gvisor-a")
	second := *w.nodes
	second.Passes = &nodes.Passes{}
	w.freeze(&corev1.PodList{}, &corev1.NodeList{})
	away := w.node("a-005")
	was := away.Status.Conditions
	away.Status.Conditions = nil
	w.must(w.client.Status().Update(t.Context(), away))
	for range 5 {
		w.reconcile(w.nodes, "", "a")
		w.reconcile(&second, "", "a")
		if busy, _ := w.renewing("gvisor"); busy != 2 {
			t.Fatalf("%d nodes have their turn", busy)
		}
	}
	w.thaw()
	away = w.node("a-005")
	away.Status.Conditions = was
	w.must(w.client.Status().Update(t.Context(), away))
	w.settle()
	w.wants("in the end", w.operation("gvisor-a"), "gvisor 2 was verified on 6 of 6 nodes")
}

// A cache that has not heard of a DaemonSet's release takes no pods of that release.
func TestReleaseThatCachesHaveNotHeardOf(t *testing.T) {
	w := installed(t, 2, 2, "gvisor")
	w.freeze(&appsv1.DaemonSetList{})
	old := w.behind
	w.behind = nil
	w.release(aPayload("gvisor", "1"), "2", "runsc")
	w.settle()
	var before, after corev1.PodList
	w.must(w.client.List(t.Context(), &before))
	w.behind = old
	w.reconcile(w.nodes, "", "a")
	w.must(w.client.List(t.Context(), &after))
	if len(before.Items) != 2 || len(after.Items) != 2 || before.ResourceVersion != after.ResourceVersion {
		t.Errorf("before %d pods, after %d", len(before.Items), len(after.Items))
	}
}

// Nodes that serve nobody anyway count, and they are named.
func TestReleaseWaitsForNodesThatAreAway(t *testing.T) {
	w := installed(t, 3, 1, "gvisor")
	n := w.node("a-001")
	n.Status.Conditions = nil
	w.must(w.client.Status().Update(t.Context(), n))
	w.lazy["a-001"] = true
	w.release(aPayload("gvisor", "1"), "2", "runsc")
	w.settle()
	const says = "gvisor 2 was verified on 0 of 3 nodes; 2 nodes wait for their turn until these are ready: a-001 (does not answer)"
	w.wants("away", w.operation("gvisor-a"), "Processing", says)
	w.wants("condition", w.nodesReady("gvisor-a"), says)
	w.wants("pool", w.condition(aPool("a"), "Ready"), "False Waiting", says)
	if busy, done := w.renewing("gvisor"); busy != 1 || done != 0 {
		t.Errorf("%d nodes are worked on, and %d done", busy, done)
	}
	w.must(w.client.Delete(t.Context(), n))
	w.settle()
	w.wants("without it", w.operation("gvisor-a"), "Succeeded", "gvisor 2 was verified on 2 of 2 nodes")
}

// A release that fails comes to no more nodes than may be unavailable, and the next one
// replaces it there first.
func TestReleaseThatFails(t *testing.T) {
	w := installed(t, 5, 2, "gvisor", "kata-containers")
	release := aPayload("gvisor", "1")
	w.watch = func() { // a node goes wrong when it gets release 2
		var pods corev1.PodList
		w.must(w.client.List(t.Context(), &pods, client.MatchingLabels{names.Type: "gvisor"}))
		clear(w.results)
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.Containers[0].Image == release.Spec.Image {
				w.results[p.Spec.NodeName] = &payload.InstallResult{State: payload.RolledBack, Reason: payload.NoSpace, Message: "the disk is full", Served: []string{"runsc", "kata-qemu"}}
			}
		}
	}
	w.release(release, "2", "runsc")
	w.settle()
	w.wants("failing", w.operation("gvisor-a"), "Error", "gvisor 2 was verified on 0 of 5 nodes", "a-000: NoSpace: the disk is full", "a-001: NoSpace")
	if w.node("a-000").Labels[names.Ready+"gvisor"] != "true" {
		t.Error("pods are kept from a node that serves the release before")
	}
	if busy, done := w.renewing("gvisor"); busy != 2 || done != 0 {
		t.Errorf("%d nodes are worked on, and %d done", busy, done)
	}
	peak := 0
	clear(w.results)
	w.watch = func() {
		busy, _ := w.renewing("gvisor", "kata-containers")
		peak = max(peak, busy)
	}
	w.release(release, "3", "runsc")
	w.settle()
	w.wants("mended", w.operation("gvisor-a"), "Succeeded", "gvisor 3 was verified on 5 of 5 nodes")
	if peak > 2 {
		t.Errorf("%d nodes were worked on at once, of 2", peak)
	}
}

// What holds a release up for long is told with the node.
func TestReleaseThatHangs(t *testing.T) {
	for name, test := range map[string]struct {
		hang func(*world)
		says string
	}{
		"an installer is not done": {func(w *world) {
			w.runs = func(p *corev1.Pod) {
				if p.Spec.NodeName != "a-000" {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
					return
				}
				p.Status.Phase = corev1.PodRunning
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.CreationTimestamp.Time)}}}}
			}
		}, "a-000: its installer has not been done for more than 5 minutes; look at its log: kubectl logs -n fairlead-system fairlead-gvisor-a-a-000"},
		"one does not end": {func(w *world) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "fairlead-gvisor-a-a-000"}}
			w.get(p)
			p.Finalizers = []string{"example.com/hangs"}
			w.must(w.client.Update(w.t.Context(), p))
		}, "a-000: its installer's pod fairlead-system/fairlead-gvisor-a-a-000 was to end more than 5 minutes ago and has not"},
	} {
		t.Run(name, func(t *testing.T) {
			w := installed(t, 2, 1, "gvisor")
			w.release(aPayload("gvisor", "1"), "2", "runsc")
			test.hang(w)
			w.settle()
			w.wants("soon", w.operation("gvisor-a"), "Processing", "1 nodes wait for their turn until these are ready: a-000")
			w.now = time.Now().Add(time.Hour) // the fake client deletes by the clock of the machine
			w.settle()
			w.wants("later", w.operation("gvisor-a"), "Error", test.says, "1 nodes wait for their turn", "ERR_RETRYABLE_CONFIGURATION_PROBLEM")
			w.wants("the pool", w.condition(aPool("a"), "Ready"), "False Waiting", test.says)
		})
	}
}
