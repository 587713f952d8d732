package operator

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// release has a payload be another version.
func (w *world) release(p *v1alpha1.RuntimePayload, version string, handlers ...string) {
	w.t.Helper()
	next := aPayload(p.Name, version, handlers...)
	next.Spec.Image = strings.Replace(next.Spec.Image, "sha256:ab", "sha256:a"+version, 1)
	w.change(p, func() { p.Spec = next.Spec })
}

// nodesReady is a condition of a ContainerRuntime, as text.
func (w *world) nodesReady(name string) string {
	for _, c := range w.runtime(name).Status.Conditions {
		if c.Type == "NodesReady" {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return "none"
}

// While a release is rolled out, nodes still have the one before. They count when
// their pod has verified the new one.
func TestUpgradeIsCounted(t *testing.T) {
	w := newWorld(t)
	p := aPayload("gvisor", "1", "runsc")
	w.create(p)
	w.fleet("a", 3)
	pool := aPool("a", "gvisor")
	pool.Spec.MaxUnavailable = new(intstr.FromInt32(3))
	w.create(pool)
	w.settle()
	for _, n := range []string{"a-000", "a-001", "a-002"} {
		w.lazy[n] = true
	}
	w.release(p, "2", "runsc")
	w.settle()
	w.wants("before", w.operation("gvisor-a"), "Processing", "gvisor 2 was verified on 0 of 3 nodes")
	w.wants("condition", w.nodesReady("gvisor-a"), "False Installing")
	w.wants("pool", w.condition(pool, "Ready"), "False Waiting")
	if w.node("a-000").Labels[names.Ready+"gvisor"] != "true" {
		t.Error("pods are kept from a node that has the release before")
	}
	delete(w.lazy, "a-001")
	w.settle()
	w.wants("one", w.operation("gvisor-a"), "Processing", "1 of 3 nodes")
	clear(w.lazy)
	w.settle()
	w.wants("all", w.operation("gvisor-a"), "Succeeded", "gvisor 2 was verified on 3 of 3 nodes")
	w.wants("condition", w.nodesReady("gvisor-a"), "True Verified")
}

// It has not succeeded before the nodes that the pool chooses are in it and verified,
// however early somebody looks.
func TestNothingSucceedsEarly(t *testing.T) {
	w := prepared(t, 3)
	w.watch = func() {
		c := w.runtime("gvisor-a")
		if c == nil || c.Status.LastOperation == nil || c.Status.LastOperation.State != gardener.StateSucceeded {
			return
		}
		for _, n := range []string{"a-000", "a-001", "a-002"} {
			if w.node(n).Labels[names.Ready+"gvisor"] != "true" {
				t.Errorf("succeeded without %s: %s", n, w.operation("gvisor-a"))
			}
		}
	}
	w.create(aPool("a", "gvisor"))
	w.settle()
	w.wants("in the end", w.operation("gvisor-a"), "Succeeded", "3 of 3 nodes")
}

// Who waits for a pool without nodes is not kept waiting, and not told that anything
// was verified.
func TestPoolWithoutNodes(t *testing.T) {
	w := newWorld(t)
	w.create(aPayload("gvisor", "1", "runsc"))
	p := aPool("a", "gvisor")
	w.create(p)
	w.settle()
	got := w.operation("gvisor-a")
	w.wants("empty", got, "Create Succeeded 100: pool a has no nodes; gvisor 1 comes to each that it gets")
	if strings.Contains(got+w.nodesReady("gvisor-a"), "verified") {
		t.Errorf("%s, %s", got, w.nodesReady("gvisor-a"))
	}
	w.wants("condition", w.nodesReady("gvisor-a"), "Unknown NoNodes")
	w.wants("pool", w.condition(p, "Ready"), "True NoNodes")
	w.fleet("a", 1)
	w.settle()
	w.wants("pool", w.condition(p, "Ready"), "True Installed: 1 runtimes are on 1 nodes")
}

// Without a payload there is nothing to install and nothing to take away, so that no
// node is marked and no deletion waits.
func TestWithoutPayload(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 1)
	p := aPool("a", "gvisor")
	w.create(p)
	w.settle()
	if got := w.node("a-000").Labels; got[names.Phase+"gvisor"] != "" {
		t.Errorf("labels: %v", got)
	}
	w.must(w.client.Delete(t.Context(), p))
	w.settle()
	if w.get(p) {
		t.Error("the pool is still there")
	}
	w.untouched()
}

// Whatever was taken away by somebody else, a deletion ends, or says what it needs.
func TestDeletionEnds(t *testing.T) {
	w := newWorld(t)
	release := aPayload("gvisor", "1", "runsc")
	w.create(release)
	w.fleet("a", 1)
	c := asked("a")
	w.create(c)
	w.settle()
	w.must(w.client.Delete(t.Context(), release))
	var sets appsv1.DaemonSetList
	w.must(w.client.List(t.Context(), &sets))
	for i := range sets.Items {
		w.must(w.client.Delete(t.Context(), &sets.Items[i]))
	}
	w.must(w.client.Delete(t.Context(), c))
	w.settle()
	w.wants("without anything", w.operation("gvisor-a"), "Delete Error", "gone with RuntimePayload gvisor: create it again", "force-deletion", "ERR_CONFIGURATION_PROBLEM")
	w.create(aPayload("gvisor", "1", "runsc"))
	w.settle()
	w.untouched()
}

// A node that is born with a taint keeps it until all that its pool asks for is there.
func TestStartupTaint(t *testing.T) {
	taint := corev1.Taint{Key: "fairlead.run/starting", Effect: "NoSchedule"}
	for name, test := range map[string]struct {
		types    []string
		payloads []client.Object
		change   func(*v1alpha1.WorkerPool)
		lifted   bool
	}{
		"all are ready":        {types: []string{"gvisor", "kata"}, payloads: []client.Object{aPayload("gvisor", "1", "runsc"), aPayload("kata-containers", "1", "kata-qemu")}, lifted: true},
		"one has no payload":   {types: []string{"gvisor", "kata"}, payloads: []client.Object{aPayload("gvisor", "1", "runsc")}},
		"none has":             {types: []string{"gvisor"}},
		"nothing is asked for": {lifted: true},
		"the pool is wrong":    {types: []string{"gvisro"}},
		"the image is wrong":   {change: func(p *v1alpha1.WorkerPool) { p.Name = strings.Repeat("a", 41) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(test.payloads...)
			p := aPool("a", test.types...)
			p.Spec.StartupTaint = &v1alpha1.StartupTaint{Key: taint.Key, Effect: string(taint.Effect)}
			if test.change != nil {
				test.change(p)
			}
			w.fleet("a", 1)
			n := w.node("a-000")
			n.Spec.Taints = []corev1.Taint{taint}
			w.must(w.client.Update(t.Context(), n))
			w.create(p)
			w.settle()
			if got := len(w.node("a-000").Spec.Taints) == 0; got != test.lifted {
				t.Errorf("lifted: %v", got)
			}
		})
	}
	// A type that is added to a pool is waited for as well.
	w := prepared(t, 1)
	p := aPool("a", "gvisor")
	p.Spec.StartupTaint = &v1alpha1.StartupTaint{Key: taint.Key, Effect: string(taint.Effect)}
	w.create(p)
	w.settle()
	n := w.node("a-000")
	n.Spec.Taints = []corev1.Taint{taint}
	w.must(w.client.Update(t.Context(), n))
	w.change(p, func() {
		p.Spec.CRI.ContainerRuntimes = append(p.Spec.CRI.ContainerRuntimes, v1alpha1.PoolRuntime{Type: "kata"})
	})
	w.settle()
	if len(w.node("a-000").Spec.Taints) != 1 {
		t.Error("the taint went before the type that was added was there")
	}
}

// Nor does it go in the moment in which a runtime is found to be broken.
func TestStartupTaintStaysWithABrokenRuntime(t *testing.T) {
	w := prepared(t, 1)
	p := aPool("a", "gvisor")
	p.Spec.StartupTaint = &v1alpha1.StartupTaint{Key: "fairlead.run/starting", Effect: "NoSchedule"}
	w.create(p)
	w.settle()
	w.results["a-000"] = &payload.InstallResult{State: payload.Failed, Reason: payload.RestartFailed}
	w.kubelets()
	n := w.node("a-000")
	n.Spec.Taints = []corev1.Taint{{Key: "fairlead.run/starting", Effect: "NoSchedule"}}
	w.must(w.client.Update(t.Context(), n))
	w.reconcile(w.nodes, "", "a")
	if n = w.node("a-000"); len(n.Spec.Taints) != 1 || n.Labels[names.Ready+"gvisor"] != "" {
		t.Errorf("taints %v, labels %v", n.Spec.Taints, n.Labels)
	}
}

// A node says what it serves, and its labels follow that: after a refusal or a rollback
// it is what was there before, if that is still there.
func TestLabelsFollowTheNode(t *testing.T) {
	for name, test := range map[string]struct {
		result payload.InstallResult
		ready  bool
	}{
		"refused, and as it was":        {payload.InstallResult{State: payload.Refused, Reason: payload.NoSpace, Served: []string{"runsc"}}, true},
		"refused, and it is gone":       {payload.InstallResult{State: payload.Refused, Reason: payload.Conflict, Served: []string{}}, false},
		"rolled back, and as it was":    {payload.InstallResult{State: payload.RolledBack, Reason: payload.CheckFailed, Served: []string{"runsc"}}, true},
		"rolled back to another":        {payload.InstallResult{State: payload.RolledBack, Reason: payload.CheckFailed, Served: []string{"runsc-old"}}, false},
		"refused, and nothing is known": {payload.InstallResult{State: payload.Refused, Reason: payload.Busy}, true},
		"failed":                        {payload.InstallResult{State: payload.Failed, Reason: payload.RestartFailed, Served: []string{"runsc"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := aPayload("gvisor", "1", "runsc")
			w.create(p)
			w.fleet("a", 1)
			w.create(aPool("a", "gvisor"))
			w.settle()
			w.results["a-000"] = &test.result
			w.release(p, "2", "runsc")
			w.settle()
			l := w.node("a-000").Labels
			if (l[names.Ready+"gvisor"] == "true") != test.ready || (l[names.Handler+"runsc"] == "gvisor") != test.ready {
				t.Errorf("labels: %v", l)
			}
			if got := w.operation("gvisor-a"); strings.Contains(got, "Succeeded") {
				t.Error(got)
			}
		})
	}
}

// What installs puts back what is taken away, and what takes away would take what is
// installed: one begins when the other has ended.
func TestInstallerAndCleanerNeverMeet(t *testing.T) {
	w, p := pooled(t, 1)
	w.settle()
	pods := func() (work []string) {
		var list corev1.PodList
		w.must(w.client.List(t.Context(), &list, client.HasLabels{names.Work}))
		for i := range list.Items {
			work = append(work, list.Items[i].Labels[names.Work])
		}
		return work
	}
	w.watch = func() {
		if got := pods(); len(got) > 1 {
			t.Errorf("there are %v at once", got)
		}
	}
	w.linger["a-000"] = true
	w.change(p, func() { p.Spec.CRI.ContainerRuntimes = nil })
	w.settle()
	if got := w.node("a-000").Labels[names.Phase+"gvisor"]; got != "leaving.a" {
		t.Errorf("phase: %s", got)
	}
	delete(w.linger, "a-000")
	for range 20 {
		if w.step(); slices.Equal(pods(), []string{"cleanup"}) {
			break
		}
	}
	w.linger["a-000"] = true
	w.change(p, func() { p.Spec.CRI.ContainerRuntimes = []v1alpha1.PoolRuntime{{Type: "gvisor"}} })
	w.settle()
	if got := w.node("a-000").Labels[names.Phase+"gvisor"]; got != "" {
		t.Errorf("phase: %s", got)
	}
	delete(w.linger, "a-000")
	w.settle()
	w.wants("again", w.condition(p, "Ready"), "True Installed: 1 runtimes are on 1 nodes")
}

// A node that somebody else has put into a pool is theirs, whether or not there is
// such a pool here: Gardener labels its machines like that.
func TestForeignPoolLabel(t *testing.T) {
	w := prepared(t, 2)
	n := w.node("a-001")
	n.Labels[gardener.LabelPool] = "worker-xyz"
	w.must(w.client.Update(t.Context(), n))
	p := aPool("a", "gvisor")
	w.create(p)
	w.settle()
	if got := w.node("a-001").Labels; got[gardener.LabelPool] != "worker-xyz" || got[names.Phase+"gvisor"] != "" {
		t.Errorf("labels: %v", got)
	}
	w.wants("pool", w.condition(p, "Ready"), "False Contested", "a-001", "take that one off")
	n = w.node("a-001")
	delete(n.Labels, gardener.LabelPool)
	w.must(w.client.Update(t.Context(), n))
	w.settle()
	w.wants("pool", w.condition(p, "Ready"), "True Installed: 1 runtimes are on 2 nodes")
}

// What a payload no longer has goes from the pods as well.
func TestPullSecretsGo(t *testing.T) {
	w := newWorld(t)
	p := aPayload("gvisor", "1", "runsc")
	p.Spec.PullSecrets = []string{"old"}
	w.create(p)
	w.fleet("a", 1)
	w.create(aPool("a", "gvisor"))
	w.settle()
	secrets := func() (n int) {
		var sets appsv1.DaemonSetList
		w.must(w.client.List(t.Context(), &sets))
		for i := range sets.Items {
			n += len(sets.Items[i].Spec.Template.Spec.ImagePullSecrets)
		}
		return n
	}
	if secrets() != 2 {
		t.Fatal("there are none")
	}
	w.change(p, func() { p.Spec.PullSecrets = nil })
	w.settle()
	if n := secrets(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// The installer moves nothing, so an image whose programs go elsewhere is for another
// pool.
func TestImageThatMovesPrograms(t *testing.T) {
	w, p := pooled(t, 1)
	w.settle()
	w.change(p, func() { p.Spec.MachineImage.Name = "flatcar" })
	w.settle()
	w.wants("valid", w.condition(p, "Valid"), "False Invalid", "spec.machineImage.name", "/usr/bin", "make another pool")
	if got := w.runtime("gvisor-a").Spec.BinaryPath; got != "/usr/bin" {
		t.Errorf("its programs go to %s", got)
	}
	w.change(p, func() { p.Spec.MachineImage.Name = "debian" })
	w.settle()
	w.wants("valid", w.condition(p, "Valid"), "True")
}

// What a pool leaves open is seen on its nodes, and what only somebody can judge is said
// where people look.
func TestPoolIsHeldAgainstItsNodes(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 2)
	w.create(aPayload("kata-containers", "1", "kata-qemu"), aPool("a", "kata"))
	kubelet := func(node, version string) {
		n := w.node(node)
		n.Status.NodeInfo.KubeletVersion = version
		w.must(w.client.Status().Update(w.t.Context(), n))
	}
	valid := func() string {
		p := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		w.get(p)
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionValid)
		return string(c.Status) + " " + c.Reason + " " + c.Message
	}
	kubelet("a-000", "v1.37.2")
	kubelet("a-001", "v1.13.9+x")
	w.settle()
	w.wants("old kubelet", valid(), "False Invalid", "v1.13.9+x", "from Kubernetes 1.14 on")
	kubelet("a-001", "v1.37.2")
	w.settle()
	w.wants("machine of nobody knows whom", valid(), "True Warned", "nobody says whose machines of type m5.metal are")
	p := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	w.change(p, func() { p.Spec.Provider = "aws" })
	w.settle()
	w.wants("all said", valid(), "True Checked the pool can be acted on")
}
