package operator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

func settings(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func (w *world) agreed(name string) string {
	for _, c := range w.runtime(name).Status.Conditions {
		if c.Type == "ClassesAgreed" {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return "none"
}

// user is a pod that has a class.
func (w *world) user(class string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team"}, Spec: corev1.PodSpec{RuntimeClassName: &class}}
	w.create(p)
	return p
}

// Of two objects that want a class otherwise the older one has it, for good, and the
// younger one is told what to do.
func TestOverheadsThatDiffer(t *testing.T) {
	w := prepared(t, 1)
	w.fleet("b", 1)
	a, b := asked("a"), asked("b")
	a.Spec.ProviderConfig = settings(`{"overhead":{"memory":"48Mi"}}`)
	b.Spec.ProviderConfig = settings(`{"overhead":{"memory":"64Mi"}}`)
	w.create(a)
	w.now = w.now.Add(time.Minute)
	w.create(b)
	w.settle() // which they never did as long as they fought
	memory := func() string { return w.class("gvisor").Overhead.PodFixed.Memory().String() }
	if memory() != "48Mi" {
		t.Errorf("overhead: %s", memory())
	}
	w.wants("the older", w.operation("gvisor-a"), "Succeeded")
	w.wants("the older", w.agreed("gvisor-a"), "True Agreed")
	says := []string{"ContainerRuntime fairlead-system/gvisor-a gives it, memory=48Mi, and not memory=64Mi", "give them the same overhead"}
	w.wants("the younger", w.operation("gvisor-b"), append(says, "verified on 1 of 1 nodes", "Error", "ERR_CONFIGURATION_PROBLEM")...)
	w.wants("the younger", w.agreed("gvisor-b"), append(says, "False Overruled")...)
	w.must(w.client.Delete(t.Context(), a))
	w.settle()
	if memory() != "64Mi" {
		t.Errorf("overhead after the older has gone: %s", memory())
	}
	w.wants("alone", w.operation("gvisor-b"), "Succeeded")
}

func TestPoolsWhoseOverheadsDiffer(t *testing.T) {
	w := prepared(t, 1)
	w.fleet("b", 1)
	a, b := aPool("a", "gvisor"), aPool("b", "gvisor")
	w.create(a)
	w.now = w.now.Add(time.Minute)
	w.create(b)
	w.settle()
	w.change(b, func() { b.Spec.CRI.ContainerRuntimes[0].ProviderConfig = settings(`{"overhead":{"memory":"64Mi"}}`) })
	w.settle()
	w.wants("the younger", w.condition(b, "Valid"), "False Invalid", "spec.cri.containerRuntimes[0].providerConfig", "WorkerPool a gives it, memory=32Mi, and this pool wants memory=64Mi")
	w.change(a, func() { a.Spec.CRI.ContainerRuntimes[0].ProviderConfig = settings(`{"overhead":{"memory":"64Mi"}}`) })
	w.settle()
	w.wants("both", w.condition(a, "Ready")+w.condition(b, "Ready")+w.condition(b, "Valid"), "True")
	if got := w.class("gvisor").Overhead.PodFixed.Memory().String(); got != "64Mi" {
		t.Errorf("overhead: %s", got)
	}
	for _, name := range []string{"gvisor-a", "gvisor-b"} {
		w.wants(name, w.operation(name), "Succeeded")
	}
}

// Pools may have other handlers of a type. A class leads to nodes that serve its own.
func TestHandlersOfPools(t *testing.T) {
	w := newWorld(t)
	w.create(aPayload("kata-containers", "1", "kata-qemu", "kata-clh"))
	w.fleet("a", 1)
	w.fleet("b", 1)
	a, b := aPool("a", "kata"), aPool("b", "kata")
	a.Spec.CRI.ContainerRuntimes[0].ProviderConfig = settings(`{"handlers":["kata-qemu"]}`)
	b.Spec.CRI.ContainerRuntimes[0].ProviderConfig = settings(`{"handlers":["kata-clh"]}`)
	w.create(a, b)
	w.settle()
	for class, leads := range map[string]map[string]bool{"kata-qemu": {"a-000": true}, "kata-clh": {"b-000": true}} {
		c := w.class(class)
		if c == nil {
			t.Fatalf("there is no class %s", class)
		}
		for _, n := range []string{"a-000", "b-000"} {
			if got := fits(c.Scheduling.NodeSelector, w.node(n).Labels); got != leads[n] {
				t.Errorf("%s leads to %s: %v", class, n, got)
			}
		}
	}
	for _, p := range []*v1alpha1.WorkerPool{a, b} {
		w.wants(p.Name, w.condition(p, "Ready"), "True Installed")
	}
}

// The class of a handler that no pool has any more goes, as soon as no pod has it; one
// that is somebody else's never does.
func TestClassesOfHandlersThatAreGone(t *testing.T) {
	w := newWorld(t)
	p := aPayload("kata-containers", "1", "kata-qemu", "kata-clh", "kata-fc")
	theirs := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Handler: "kata-old"}
	copied := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "copied", Labels: map[string]string{names.Type: "kata-containers"}}, Handler: "kata-clh"}
	w.create(p, theirs, copied)
	w.fleet("a", 1)
	w.create(aPool("a", "kata"))
	w.settle()
	user := w.user("kata-clh")
	w.release(p, "2", "kata-qemu")
	w.settle()
	if w.class("kata-fc") != nil || w.class("kata-clh") == nil || w.class("kata-qemu") == nil {
		t.Error("one that nobody has is there, or one that a pod has is not")
	}
	w.wants("held", w.agreed("kata-containers-a"), "False InUse", "kata-clh (team/web)")
	w.wants("held", w.operation("kata-containers-a"), "Succeeded")
	if got := w.node("a-000").Labels[names.Handler+"kata-clh"]; got != "" {
		t.Error("pods are still sent to a node for a handler that is gone")
	}
	w.must(w.client.Delete(t.Context(), user))
	w.settle()
	if w.class("kata-clh") != nil || w.class("mine") == nil || w.class("copied") == nil {
		t.Error("one that nobody has is there, or one of somebody else is not")
	}
	w.wants("in the end", w.agreed("kata-containers-a"), "True Agreed")
}

// A providerConfig that cannot be read may want any class, so that none is nobody's.
func TestNoClassGoesByAMistake(t *testing.T) {
	w := newWorld(t)
	w.create(aPayload("kata-containers", "1", "kata-qemu", "kata-clh"))
	w.fleet("a", 1)
	w.fleet("b", 1)
	runtimeOf := func(pool, handler string) *gardener.ContainerRuntime {
		c := asked(pool)
		c.Name, c.Spec.Type, c.Spec.ProviderConfig = "kata-"+pool, "kata-containers", settings(`{"handlers":["`+handler+`"]}`)
		return c
	}
	a, b := runtimeOf("a", "kata-qemu"), runtimeOf("b", "kata-clh")
	w.create(a, b)
	w.settle()
	w.change(b, func() { b.Spec.ProviderConfig = settings(`{"handlers":["typo"]}`) })
	w.settle()
	if w.class("kata-clh") == nil {
		t.Error("the class has gone")
	}
}

// Pods of a class that somebody else has made for a handler of the type use it as well, on
// the nodes that have it from here.
func TestClassesOfOthersAreUses(t *testing.T) {
	w := newWorld(t)
	theirs := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Handler: "kata-qemu"}
	unlike := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "unlike"}, Handler: "runc"}
	w.create(aPayload("kata-containers", "1", "kata-qemu"), theirs, unlike)
	w.fleet("a", 2)
	p := aPool("a", "kata")
	w.create(p)
	w.settle()
	elsewhere := w.user("mine")
	for name, class := range map[string]string{"theirs": "mine", "unlike": "unlike"} {
		w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"}, Spec: corev1.PodSpec{RuntimeClassName: &class, NodeName: "a-000"}})
	}
	used := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: "team"}}
	// A node that leaves the pool keeps it, and is looked at again by itself.
	left := w.node("a-000")
	left.Labels["group"] = "elsewhere"
	w.must(w.client.Update(t.Context(), left))
	w.settle()
	if got := w.node("a-000").Labels[names.Phase+"kata-containers"]; got != "install.a" {
		t.Errorf("it is taken away under a pod: %q", got)
	}
	got, err := w.nodes.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
	if err != nil || got.RequeueAfter != 30*time.Second {
		t.Errorf("nobody looks again: %+v %v", got, err)
	}
	w.must(w.client.Delete(t.Context(), p))
	w.settle()
	w.wants("in use", w.operation("kata-containers-a"), "Delete Error", "pods use kata-containers", "them: team/theirs; delete", "ERR_CLEANUP_CLUSTER_RESOURCES")
	w.must(w.client.Delete(t.Context(), used))
	w.settle()
	if w.get(p) || w.node("a-000").Labels[names.Phase+"kata-containers"] != "" {
		t.Errorf("it is still there: %s", w.operation("kata-containers-a"))
	}
	if !w.get(elsewhere) || w.class("mine") == nil {
		t.Error("what is not ours has gone")
	}
}

// A class that somebody else has made under a name that is needed is seen to go, also where
// the name is that of a handler.
func TestClassInTheWayIsSeenToGo(t *testing.T) {
	b := startBound(t, false)
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata-qemu"}, Handler: "kata-qemu"}
	b.Put(kinds["RuntimeClass"], class)
	b.Put(kinds["RuntimePayload"], aPayload("kata-containers", "1", "kata-qemu"))
	p := aPool("a", "kata")
	b.Put(kinds["WorkerPool"], p)
	key := operatorsIn + "/kata-containers-a"
	b.until("it is in the way", func() bool { return b.state(key).State == gardener.StateError })
	b.Delete(kinds["RuntimeClass"], "kata-qemu")
	b.until("it has gone", func() bool { return b.state(key).State == gardener.StateSucceeded })
}
