package operator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// of gives nodes their architectures.
func (w *world) of(arch string, nodes ...string) {
	w.t.Helper()
	for _, name := range nodes {
		n := w.node(name)
		w.change(n, func() { n.Labels[corev1.LabelArchStable] = arch })
	}
}

// installed is how far gVisor is on a node, and which pods are there.
func (w *world) installed(node string) string {
	w.t.Helper()
	var out []string
	n := w.node(node)
	for _, key := range []string{names.Requested + "gvisor", names.RequestedSeed + "gvisor", names.Phase + "gvisor", names.Ready + "gvisor", names.Handler + "runsc"} {
		if n.Labels[key] != "" {
			out = append(out, key)
		}
	}
	var pods corev1.PodList
	w.must(w.client.List(w.t.Context(), &pods, client.HasLabels{names.Work}))
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node {
			out = append(out, "a pod")
		}
	}
	return strings.Join(out, " ")
}

const (
	all     = "containerruntime.worker.gardener.cloud/gvisor container.runtime.gvisor install.fairlead.run/gvisor ready.fairlead.run/gvisor handler.fairlead.run/runsc"
	nothing = ""
)

// Nodes of another architecture than their pool get nothing, hold nobody up, and are
// named with what to do.
func TestOtherArchitecture(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 3)
	w.of("amd64", "a-000", "a-002")
	w.of("arm64", "a-001")
	release := aPayload("gvisor", "1", "runsc")
	release.Spec.Manifest.Architectures = []string{"amd64", "arm64"}
	p := aPool("a", "gvisor")
	w.create(release, p)
	w.settle()
	for node, want := range map[string]string{"a-000": all + " a pod", "a-001": nothing, "a-002": all + " a pod"} {
		if got := w.installed(node); got != want {
			t.Errorf("%s has %q, not %q", node, got, want)
		}
	}
	w.get(p)
	w.wants("pool", w.condition(p, v1alpha1.ConditionReady), "False OtherArchitecture", "a-001 (arm64 and not amd64)", "kubernetes.io/arch")
	w.wants("runtime", w.operation("gvisor-a"), "Error", "verified on 2 of 3 nodes", "a-001 (arm64 and not amd64)", "ERR_CONFIGURATION_PROBLEM")
	w.change(p, func() { p.Spec.NodeSelector[corev1.LabelArchStable] = "amd64" })
	other := aPool("b", "gvisor")
	other.Spec.Architecture, other.Spec.NodeSelector = "arm64", map[string]string{"group": "a", corev1.LabelArchStable: "arm64"}
	w.create(other)
	w.settle()
	for _, p := range []*v1alpha1.WorkerPool{p, other} {
		w.get(p)
		w.wants("pool "+p.Name, w.condition(p, v1alpha1.ConditionReady), "True Installed")
	}
	if got := w.installed("a-001"); got != all+" a pod" {
		t.Errorf("in its own pool it has %q", got)
	}
}

// Another architecture in a pool takes away nothing that was verified, and what was not
// does not stay half installed.
func TestArchitectureThatChanges(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 3)
	w.of("amd64", "a-000", "a-001")
	w.of("arm64", "a-002")
	w.lazy["a-001"] = true
	release := aPayload("gvisor", "1", "runsc")
	release.Spec.Manifest.Architectures = []string{"amd64", "arm64"}
	p := aPool("a", "gvisor")
	w.create(release, p)
	w.settle()
	if got, lazy := w.installed("a-000"), w.installed("a-001"); got != all+" a pod" || !strings.Contains(lazy, names.Phase) {
		t.Fatalf("before: %q %q", got, lazy)
	}
	w.lazy["a-001"] = false // what cleans is not
	w.change(p, func() { p.Spec.Architecture = "arm64" })
	w.settle()
	for node, want := range map[string]string{"a-000": all, "a-001": nothing, "a-002": all + " a pod"} {
		if got := w.installed(node); got != want {
			t.Errorf("%s has %q, not %q", node, got, want)
		}
	}
	w.get(p)
	w.wants("pool", w.condition(p, v1alpha1.ConditionReady), "False OtherArchitecture", "2 of its nodes", "a-000 (amd64 and not arm64), a-001 (amd64 and not arm64)")
}

// Nodes of no pool are those for which there are programs.
func TestArchitectureWithoutPool(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 2)
	w.of("amd64", "a-000")
	w.of("s390x", "a-001")
	release := aPayload("gvisor", "1", "runsc")
	release.Spec.Manifest.Architectures = []string{"amd64", "arm64"}
	c := asked("a")
	c.Spec.WorkerPool.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"group": "a"}}
	w.create(release, c)
	w.settle()
	for node, want := range map[string]string{"a-000": all + " a pod", "a-001": nothing} {
		if got := w.installed(node); got != want {
			t.Errorf("%s has %q, not %q", node, got, want)
		}
	}
	w.wants("runtime", w.operation("gvisor-a"), "Error", "a-001 (s390x and not amd64 or arm64)")
}
