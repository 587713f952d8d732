package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/install"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/workerpool"
)

// A pool from its first to its last day.
func TestPool(t *testing.T) {
	w := newWorld(t)
	w.create(aPayload("gvisor", "1", "runsc"), aPayload("kata-containers", "1", "kata-qemu", "kata-clh"))
	w.fleet("sandboxed", 3)
	w.fleet("plain", 1)
	p := aPool("sandboxed", "gvisor", "kata")
	p.Spec.StartupTaint = &v1alpha1.StartupTaint{Key: "fairlead.run/starting", Effect: "NoSchedule"}
	w.create(p)
	n := w.node("sandboxed-000")
	n.Spec.Taints = []corev1.Taint{{Key: "fairlead.run/starting", Effect: "NoSchedule"}, {Key: "keep", Effect: "NoSchedule"}}
	w.must(w.client.Update(t.Context(), n))
	w.watch = func() {
		n := w.node("sandboxed-000")
		ready := n.Labels[names.Ready+"gvisor"] == "true" && n.Labels[names.Ready+"kata-containers"] == "true"
		if len(n.Spec.Taints) < 2 && !ready {
			t.Error("the startup taint went before the runtimes were ready")
		}
	}
	w.settle()
	w.watch = nil
	w.wants("ready", w.condition(p, "Ready"), "True Installed: 2 runtimes are on 3 nodes")
	for _, name := range []string{"gvisor-sandboxed", "kata-containers-sandboxed"} {
		w.wants(name, w.operation(name), "Create Succeeded 100", "3 of 3 nodes")
		c := w.runtime(name)
		if err := workerpool.Done(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.Spec.BinaryPath != "/usr/bin" || c.Annotations[gardener.AnnotationOperation] != "" || !slices.Contains(c.Finalizers, gardener.Finalizer) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	n = w.node("sandboxed-000")
	for key, value := range map[string]string{
		gardener.LabelPool: "sandboxed", gardener.LabelCRI: "containerd", "containerruntime.worker.gardener.cloud/gvisor": "true", "container.runtime.gvisor": "true",
		"container.runtime.kata-containers": "true", "ready.fairlead.run/gvisor": "true", "handler.fairlead.run/runsc": "gvisor", "handler.fairlead.run/kata-clh": "kata-containers", "install.fairlead.run/gvisor": "install.sandboxed",
	} {
		if n.Labels[key] != value {
			t.Errorf("label %s: %q", key, n.Labels[key])
		}
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "keep" {
		t.Errorf("taints: %v", n.Spec.Taints)
	}
	if other := w.node("plain-000"); len(other.Labels) != 1 {
		t.Errorf("a node of no pool: %v", other.Labels)
	}
	c := w.class("gvisor")
	if c == nil || c.Handler != "runsc" || c.Scheduling.NodeSelector["handler.fairlead.run/runsc"] != "gvisor" || c.Overhead.PodFixed.Memory().String() != "32Mi" || c.Labels["fairlead.run/isolation"] != "sandbox" {
		t.Errorf("class: %+v", c)
	}
	if c := w.class("kata-clh"); c == nil || c.Overhead.PodFixed.Memory().String() != "130Mi" || c.Overhead.PodFixed.Cpu().String() != "250m" {
		t.Errorf("class: %+v", c)
	}
	if c := w.class("kata-qemu"); c == nil || c.Overhead.PodFixed.Memory().String() != "320Mi" {
		t.Errorf("class: %+v", c)
	}

	// A type less.
	w.change(p, func() { p.Spec.CRI.ContainerRuntimes = p.Spec.CRI.ContainerRuntimes[:1] })
	w.settle()
	if w.runtime("kata-containers-sandboxed") != nil || w.class("kata-clh") != nil || w.class("gvisor") == nil {
		t.Error("kata-containers is still there, or gvisor is not")
	}
	for key := range w.node("sandboxed-001").Labels {
		if key == names.Phase+"kata-containers" || key == names.Ready+"kata-containers" || key == "container.runtime.kata-containers" {
			t.Errorf("label %s is still there", key)
		}
	}

	// And the end.
	w.must(w.client.Delete(t.Context(), p))
	w.settle()
	if w.get(p) || w.class("gvisor") != nil {
		t.Error("the pool or its class is still there")
	}
	if n := w.node("sandboxed-002"); len(n.Labels) != 1 {
		t.Errorf("labels: %v", n.Labels)
	}
	var sets appsv1.DaemonSetList
	w.must(w.client.List(t.Context(), &sets))
	if len(sets.Items) > 0 {
		t.Errorf("%d DaemonSets are still there", len(sets.Items))
	}
}

// Many nodes are worked on a few at a time, each once for all of its runtimes. test/e2e
// does the same with 200 and a real API server.
func TestPace(t *testing.T) {
	w := newWorld(t)
	w.create(aPayload("gvisor", "1", "runsc"), aPayload("kata-containers", "1", "kata-qemu"))
	w.fleet("big", 30)
	p := aPool("big", "gvisor", "kata-containers")
	most := intstr.FromString("20%")
	p.Spec.MaxUnavailable = &most
	w.create(p)
	peak, halves, ending := 0, 0, ""
	w.watch = func() {
		busy := 0
		var all corev1.NodeList
		w.must(w.client.List(t.Context(), &all))
		for i := range all.Items {
			l, begun := all.Items[i].Labels, 0
			works := false
			for _, typ := range []string{"gvisor", "kata-containers"} {
				phase, _ := names.ReadPhase(l[names.Phase+typ])
				if phase != names.None {
					begun++
				}
				goes := ending == "all" || ending == typ || l["group"] != "big"
				works = works || phase == names.Cleanup || phase == names.Install && !goes && l[names.Ready+typ] == ""
			}
			if begun == 1 && ending == "" {
				halves++
			}
			if works {
				busy++
			}
		}
		peak = max(peak, busy)
	}
	within := func(what string, most int) {
		t.Helper()
		if peak > most || peak < 3 {
			t.Errorf("%s: %d nodes were worked on at once, of %d", what, peak, most)
		}
		peak = 0
	}
	w.settle()
	w.wants("ready", w.condition(p, "Ready"), "True Installed: 2 runtimes are on 30 nodes")
	within("installed", 6)
	if halves > 0 {
		t.Errorf("a node began with one of its runtimes %d times: its CRI runtime is restarted twice", halves)
	}

	// Nodes that leave the pool are cleaned at the same pace, and one that does not
	// answer goes last.
	for i := range 10 {
		n := w.node(fmt.Sprintf("big-%03d", i))
		n.Labels["group"] = "elsewhere"
		if i == 0 {
			n.Status.Conditions = nil
		}
		w.must(w.client.Update(t.Context(), n))
	}
	w.lazy["big-000"] = true
	w.settle()
	within("nodes have left", 6)
	for i := range 10 {
		if n := w.node(fmt.Sprintf("big-%03d", i)); (len(n.Labels) == 1) == (i == 0) {
			t.Errorf("%s: %v", n.Name, n.Labels)
		}
	}
	w.must(w.client.Delete(t.Context(), w.node("big-000")))
	ending = "kata-containers"
	w.change(p, func() { p.Spec.CRI.ContainerRuntimes = p.Spec.CRI.ContainerRuntimes[:1] })
	w.settle()
	if w.runtime("kata-containers-big") != nil {
		t.Errorf("still there: %s", w.operation("kata-containers-big"))
	}
	within("a type less", 4)
	ending = "all"
	w.must(w.client.Delete(t.Context(), p))
	w.settle()
	if w.get(p) || len(w.node("big-029").Labels) != 1 {
		t.Errorf("the pool is still there: %v", w.node("big-029").Labels)
	}
	within("taken away", 4)
}

// apiServer is one that is asked for nodes. It answers in pages of four.
type apiServer struct {
	client.Reader
	lists int
}

func (s *apiServer) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	page, limit := asked.Continue, asked.Limit
	asked.Continue, asked.Limit = "", 0
	err := s.Reader.List(ctx, into, asked)
	all, is := into.(*corev1.NodeList)
	if err != nil || !is {
		return err
	}
	s.lists++
	if limit == 0 {
		return errors.New("all nodes are asked for at once")
	}
	from, _ := strconv.Atoi(page)
	to := min(len(all.Items), from+4)
	if to < len(all.Items) {
		all.Continue = strconv.Itoa(to)
	}
	all.Items = all.Items[from:to]
	return nil
}

// behind is a cache that has not heard of nodes for a while.
type behind struct {
	client.Client
	nodes corev1.NodeList
}

func (b *behind) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if all, is := into.(*corev1.NodeList); is {
		b.nodes.DeepCopyInto(all)
		return nil
	}
	return b.Client.List(ctx, into, options...)
}

// The API server is asked for nodes only when one of them is about to begin, and then
// it has the last word.
func TestPaceAsksSeldom(t *testing.T) {
	w := prepared(t, 9)
	for i := range 9 {
		w.lazy[fmt.Sprintf("a-%03d", i)] = true
	}
	live := &apiServer{Reader: w.client}
	w.nodes.Live = live
	p := aPool("a", "gvisor")
	p.Spec.MaxUnavailable = new(intstr.FromInt32(2))
	w.create(p)
	begun := func() (n int) {
		var all corev1.NodeList
		w.must(w.client.List(t.Context(), &all, client.HasLabels{names.Phase + "gvisor"}))
		return len(all.Items)
	}
	stale := &behind{Client: w.client}
	for range 20 {
		if begun() > 0 {
			break
		}
		w.must(w.client.List(t.Context(), &stale.nodes))
		w.step()
	}
	if live.lists != 3 || begun() != 2 {
		t.Fatalf("%d nodes have begun, after %d requests", begun(), live.lists)
	}
	w.nodes.Client = stale
	w.reconcile(w.nodes, "", "a")
	if live.lists != 6 || begun() != 2 {
		t.Errorf("by a cache that is behind %d nodes have begun, after %d requests", begun(), live.lists)
	}
	w.nodes.Client = w.client
	w.settle()
	if live.lists != 6 {
		t.Errorf("no node may begin, and the API server is asked for them: %d requests", live.lists)
	}
	delete(w.lazy, "a-000")
	w.settle()
	if live.lists != 9 || begun() != 3 {
		t.Errorf("%d nodes have begun, after %d requests", begun(), live.lists)
	}
}

// Settings go when nothing mounts them any more, and not before.
func TestOldSettingsGo(t *testing.T) {
	w, p := pooled(t, 1)
	all := func() (out []string) {
		var list corev1.ConfigMapList
		w.must(w.client.List(t.Context(), &list))
		for i := range list.Items {
			out = append(out, list.Items[i].Name)
		}
		return out
	}
	w.settle()
	first := all()
	if len(first) != 1 {
		t.Fatalf("%q", first)
	}
	slow := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "slow", Namespace: home, Labels: install.Labels("gvisor", "a")}}
	slow.Labels[names.Work] = string(names.Cleanup)
	slow.Spec = corev1.PodSpec{NodeName: "gone", Volumes: []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: first[0]}},
	}}}}
	w.linger["gone"] = true
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-another", Namespace: home, Labels: install.Labels("gvisor", "a"), OwnerReferences: []metav1.OwnerReference{{Name: "gvisor-a", UID: "another"}}}}
	w.create(slow, other)
	w.change(p, func() {
		p.Spec.CRI.ContainerRuntimes[0].ProviderConfig = settings(`{"configFlags":{"net-raw":"true"}}`)
	})
	w.settle()
	w.wants("changed", w.operation("gvisor-a"), "Succeeded")
	if got := all(); len(got) != 3 || !slices.Contains(got, first[0]) {
		t.Errorf("a pod has %s mounted, and there are %q", first[0], got)
	}
	w.must(w.client.Delete(t.Context(), slow))
	w.settle()
	if got := all(); len(got) != 2 || slices.Contains(got, first[0]) || !slices.Contains(got, "of-another") {
		t.Errorf("nothing has %s mounted, and there are %q", first[0], got)
	}
}

// Settings that are there are not made again at each look, and come back if somebody
// takes them away.
func TestSettingsAreMadeOnce(t *testing.T) {
	w := prepared(t, 3)
	made := 0
	w.fail = func(verb string, o client.Object) error {
		if _, is := o.(*corev1.ConfigMap); is && verb == "create" {
			made++
		}
		return nil
	}
	w.create(aPool("a", "gvisor"))
	w.settle()
	w.steps(5)
	if made != 1 {
		t.Errorf("they are made %d times", made)
	}
	var all corev1.ConfigMapList
	w.must(w.client.List(t.Context(), &all))
	w.must(w.client.Delete(t.Context(), &all.Items[0]))
	w.settle()
	if made != 2 || !w.get(&all.Items[0]) {
		t.Errorf("they are gone, and were made %d times", made)
	}
}

// Who looks at a pool during its first rollout sees how far it is.
func TestProgressIsTold(t *testing.T) {
	w := prepared(t, 3)
	w.lazy["a-002"] = true
	p := aPool("a", "gvisor")
	w.create(p)
	w.settle()
	w.wants("ready", w.condition(p, "Ready"), "False Waiting: gvisor: gvisor 1 was verified on 2 of 3 nodes")
}

// Who waits as a gardenlet does is told of its own order and of no other.
func TestWaitContract(t *testing.T) {
	w := prepared(t, 1)
	c := asked("a")
	w.create(c)
	w.lazy["a-000"] = true
	w.settle()
	w.wants("without an answer", w.operation("gvisor-a"), "Create Processing 10", "0 of 1 nodes")
	if err := workerpool.Done(w.runtime("gvisor-a")); err == nil {
		t.Error("done before a node was verified")
	}
	delete(w.lazy, "a-000")
	w.settle()
	if err := workerpool.Done(w.runtime("gvisor-a")); err != nil {
		t.Error(err)
	}
	// The same object, ordered again: nothing changes, and it has to be said anew. The
	// order comes within the second of the answer, or by a clock that is ahead of ours.
	for _, ahead := range []time.Duration{1500 * time.Millisecond, 40*time.Second + time.Millisecond} {
		w.get(c)
		before, began := c.Status.LastOperation.LastUpdateTime, w.now
		c.Annotations = map[string]string{gardener.AnnotationOperation: "reconcile", gardener.AnnotationTimestamp: w.now.Add(ahead).Format(time.RFC3339Nano)}
		w.must(w.client.Update(t.Context(), c))
		if err := workerpool.Done(w.runtime("gvisor-a")); err == nil {
			t.Error("an old answer counts for a new order")
		}
		w.settle()
		got := w.runtime("gvisor-a")
		if err := workerpool.Done(got); err != nil {
			t.Errorf("%s ahead: %v", ahead, err)
		}
		if took := w.now.Sub(began); took > 20*time.Second {
			t.Errorf("%s ahead: it was said after %s, when our clock was there, too", ahead, took)
		}
		w.wants("again", w.operation("gvisor-a"), "Reconcile Succeeded 100")
		if !got.Status.LastOperation.LastUpdateTime.After(before.Time) || got.Annotations[gardener.AnnotationOperation] != "" {
			t.Errorf("%+v %v", got.Status.LastOperation, got.Annotations)
		}
	}
}

// What has failed is begun anew by the next order, and says so before it fails again: a
// gardenlet that has ordered it waits for that, by the annotation or by the time alone.
func TestOrdersAfterAnErrorAreAnswered(t *testing.T) {
	w := newWorld(t)
	c := asked("a")
	w.create(c)
	w.settle()
	w.wants("without a payload", w.operation("gvisor-a"), "Create Error", "ERR_CONFIGURATION_PROBLEM")
	for name, orders := range map[string]map[string]string{
		"an order": {gardener.AnnotationOperation: "reconcile", gardener.AnnotationTimestamp: ""}, "a time": {gardener.AnnotationTimestamp: ""},
	} {
		w.now = w.now.Add(time.Minute)
		at := w.now.Add(500 * time.Millisecond)
		orders[gardener.AnnotationTimestamp] = at.Format(time.RFC3339Nano)
		w.get(c)
		c.Annotations = orders
		w.must(w.client.Update(t.Context(), c))
		var said []string
		w.fail = func(verb string, o client.Object) error {
			if c, ok := o.(*gardener.ContainerRuntime); ok && verb == "patch status" {
				last := c.Status.LastOperation
				said = append(said, string(last.State))
				if last.LastUpdateTime.Time.Before(at) {
					t.Errorf("%s: the answer is of %s, and the order of %s", name, last.LastUpdateTime, at)
				}
			}
			return nil
		}
		w.settle()
		w.fail = nil
		if want := []string{"Processing", "Error"}; !slices.Equal(said, want) {
			t.Errorf("%s: it said %q, want %q", name, said, want)
		}
	}
}

// asked is an object that no pool of ours made.
func asked(pool string) *gardener.ContainerRuntime {
	return &gardener.ContainerRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: "gvisor-" + pool, Namespace: home},
		Spec: gardener.ContainerRuntimeSpec{Type: "gvisor", BinaryPath: "/var/bin", WorkerPool: gardener.ContainerRuntimeWorkerPool{
			Name: pool, Selector: metav1.LabelSelector{MatchLabels: map[string]string{"group": pool}},
		}},
	}
}

func TestMigrateAndRestore(t *testing.T) {
	w := prepared(t, 1)
	c := asked("a")
	w.create(c)
	w.settle()
	order := func(what string) {
		w.change(c, func() { c.Annotations = map[string]string{gardener.AnnotationOperation: what}; c.Generation-- })
		w.settle()
	}
	order(gardener.OrderMigrate)
	w.wants("migrated", w.operation("gvisor-a"), "Migrate Succeeded 100")
	got := w.runtime("gvisor-a")
	if len(got.Finalizers) > 0 || len(got.Annotations) > 0 {
		t.Errorf("%v %v", got.Finalizers, got.Annotations)
	}
	if w.class("gvisor") == nil || w.node("a-000").Labels[names.Ready+"gvisor"] != "true" {
		t.Error("what was to stay has gone")
	}
	order(gardener.OrderWaitForState)
	w.wants("waiting", w.operation("gvisor-a"), "Migrate Succeeded")
	order(gardener.OrderRestore)
	w.wants("restored", w.operation("gvisor-a"), "Restore Succeeded 100")
	if got := w.runtime("gvisor-a"); len(got.Finalizers) != 1 || got.Annotations[gardener.AnnotationOperation] != "" {
		t.Errorf("%v %v", got.Finalizers, got.Annotations)
	}
}

// Nothing is taken away under pods, and it says which.
func TestDeletionWaits(t *testing.T) {
	w := prepared(t, 2)
	c := asked("a")
	w.create(c)
	w.settle()
	name := "gvisor"
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team"}, Spec: corev1.PodSpec{RuntimeClassName: &name, NodeName: "a-000"}}
	w.create(user)
	w.must(w.client.Delete(t.Context(), c))
	w.settle()
	w.wants("in use", w.operation("gvisor-a"), "Delete Error", "team/web", "ERR_CLEANUP_CLUSTER_RESOURCES")
	if w.class("gvisor") == nil || w.node("a-000").Labels[names.Phase+"gvisor"] != "install.a" {
		t.Error("it was taken away under a pod")
	}
	if w.node("a-000").Labels[names.Ready+"gvisor"] != "" {
		t.Error("new pods may still come")
	}
	w.must(w.client.Delete(t.Context(), user))
	w.results["a-000"] = &payload.InstallResult{State: payload.Refused, Reason: payload.Busy, Message: "somebody else is at it"}
	w.settle()
	w.wants("a node that refuses", w.operation("gvisor-a"), "Delete Error", "a-000: Busy: somebody else is at it")
	delete(w.results, "a-000")
	w.settle()
	if w.runtime("gvisor-a") != nil || w.class("gvisor") != nil || len(w.node("a-001").Labels) != 1 {
		t.Error("something is still there")
	}
}

func TestForceDelete(t *testing.T) {
	w, p := pooled(t, 2)
	w.settle()
	w.lazy["a-000"], w.lazy["a-001"] = true, true
	w.change(p, func() { p.Annotations = map[string]string{gardener.AnnotationForce: "true"} })
	w.must(w.client.Delete(t.Context(), p))
	w.settle()
	if w.get(p) {
		t.Error("the pool is still there")
	}
	w.untouched()
}

// A node that leaves a pool is cleaned, one that comes anew gets everything again, and
// labels that somebody takes off come back.
func TestNodesComeAndGo(t *testing.T) {
	w, _ := pooled(t, 3)
	w.settle()
	left := w.node("a-000")
	left.Labels["group"] = "elsewhere"
	w.must(w.client.Update(t.Context(), left))
	wiped := w.node("a-001")
	wiped.Labels = map[string]string{"group": "a"}
	w.must(w.client.Update(t.Context(), wiped))
	w.settle()
	if got := w.node("a-000").Labels; len(got) != 1 {
		t.Errorf("a node that has left: %v", got)
	}
	if got := w.node("a-001").Labels; got[names.Ready+"gvisor"] != "true" || got[gardener.LabelPool] != "a" {
		t.Errorf("a node whose kubelet registered anew: %v", got)
	}
	w.must(w.client.Delete(t.Context(), w.node("a-002")))
	w.now = w.now.Add(time.Hour)
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-002", Labels: map[string]string{"group": "a"}}})
	w.lazy["a-002"] = true
	w.settle()
	if got := w.node("a-002").Labels[names.Ready+"gvisor"]; got != "" {
		t.Error("a new machine is ready by what the one before it said")
	}
}

func TestTwoPoolsDisagree(t *testing.T) {
	w := prepared(t, 2)
	first := aPool("a", "gvisor")
	w.create(first)
	w.settle()
	w.now = w.now.Add(time.Minute)
	same, some := aPool("same", "gvisor"), aPool("some", "gvisor")
	same.Spec.NodeSelector = map[string]string{"group": "a"}
	some.Spec.NodeSelector = map[string]string{"zone": "1"}
	w.create(same, some)
	n := w.node("a-001")
	n.Labels["zone"] = "1"
	w.must(w.client.Update(t.Context(), n))
	w.settle()
	w.wants("the first", w.condition(first, "Ready"), "True")
	w.wants("the same nodes", w.condition(same, "Valid"), "False Invalid", "spec.nodeSelector", "WorkerPool a has the same one")
	w.wants("a node of both", w.condition(some, "Ready"), "False Contested", "a-001")
	if got := w.node("a-001").Labels[gardener.LabelPool]; got != "a" {
		t.Errorf("the node is in pool %s", got)
	}
	w.must(w.client.Delete(t.Context(), same))
	w.must(w.client.Delete(t.Context(), first))
	w.settle()
	w.wants("after the first has gone", w.condition(some, "Ready"), "True")
	if got := w.node("a-001").Labels; got[gardener.LabelPool] != "some" || got[names.Ready+"gvisor"] != "true" {
		t.Errorf("labels: %v", got)
	}
}

// What only a user can mend is said once, with its code, and not tried again.
func TestMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(w *world)
		says    []string
		mend    func(w *world)
	}{
		"no payload": {
			prepare: func(*world) {}, says: []string{"there is no RuntimePayload gvisor"},
			mend: func(w *world) { w.create(aPayload("gvisor", "1", "runsc")) },
		},
		"a class of another": {
			prepare: func(w *world) {
				w.create(aPayload("gvisor", "1", "runsc"), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "mine"})
			},
			says: []string{"RuntimeClass gvisor exists", "delete or rename it"},
			mend: func(w *world) { w.must(w.client.Delete(w.t.Context(), w.class("gvisor"))) },
		},
		"a payload that is wrong": {
			prepare: func(w *world) {
				p := aPayload("gvisor", "1", "runsc")
				p.Spec.Manifest.Files[0].SHA256 = "short"
				w.create(p)
			},
			says: []string{"spec.manifest.files[0].sha256"},
			mend: func(w *world) {
				p := aPayload("gvisor", "1", "runsc")
				good := p.DeepCopy()
				w.change(p, func() { p.Spec = good.Spec })
			},
		},
		"a node that cannot": {
			prepare: func(w *world) {
				w.create(aPayload("gvisor", "1", "runsc"))
				w.results["a-000"] = &payload.InstallResult{State: payload.Refused, Reason: payload.UnsupportedNode, Message: "its root is read-only"}
			},
			says: []string{"0 of 1 nodes", "a-000: UnsupportedNode: its root is read-only"},
			mend: func(w *world) { delete(w.results, "a-000") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fleet("a", 1)
			test.prepare(w)
			c := asked("a")
			w.create(c)
			w.settle()
			w.wants("mistake", w.operation("gvisor-a"), append(test.says, "Create Error", "ERR_CONFIGURATION_PROBLEM")...)
			test.mend(w)
			w.settle()
			w.wants("mended", w.operation("gvisor-a"), "Create Succeeded 100")
		})
	}
}

// What pods cannot say themselves is told for them, and changes nothing of nodes.
func TestSilentPods(t *testing.T) {
	container := func(now, last corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "install", State: now, LastTerminationState: last}}
		}
	}
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32, reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
	}
	none := corev1.ContainerState{}
	for name, test := range map[string]struct {
		runs func(*corev1.Pod)
		late bool // it is told when some time has passed
		says string
	}{
		"no image":         {container(waits("ImagePullBackOff", "back-off pulling x"), none), false, "a-000: ImagePullBackOff: back-off pulling x"},
		"no container":     {container(waits("CreateContainerError", "no such user"), none), false, "a-000: CreateContainerError: no such user"},
		"no memory":        {container(ended(137, "OOMKilled", ""), none), false, "a-000: its installer ended with 137 OOMKilled"},
		"no memory, again": {container(waits("CrashLoopBackOff", "back-off 10s"), ended(137, "OOMKilled", "")), false, "a-000: its installer ended with 137 OOMKilled"},
		"installed, and then no memory": {
			container(none, ended(137, "OOMKilled", `{"apiVersion":"`+payload.APIVersion+`","kind":"InstallResult","type":"gvisor","state":"Installed","served":["runsc"]}`)), false, "a-000: its installer ended with 137 OOMKilled",
		},
		"another program": {container(waits("CrashLoopBackOff", ""), ended(1, "Error", "exec format error")), false, "ended with 1 Error and left no result: exec format error"},
		"evicted": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		}, false, "a-000: Evicted: the node was low on memory"},
		"no mount": {func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			container(waits("ContainerCreating", ""), none)(p)
		}, true, "kubectl describe pod -n fairlead-system fairlead-gvisor-a-a-000"},
		"not scheduled": {func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "insufficient cpu"}}
		}, true, "a-000: its installer is not scheduled: insufficient cpu"},
		"no pod": {nil, true, "kubectl describe daemonset -n fairlead-system fairlead-gvisor-a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fleet("a", 1)
			w.create(aPayload("gvisor", "1", "runsc"), aPool("a", "gvisor"))
			w.settle()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "fairlead-gvisor-a-a-000"}}
			w.must(w.client.Delete(t.Context(), pod))
			w.runs, w.barred = test.runs, test.runs == nil
			w.settle()
			if test.late {
				if got := w.operation("gvisor-a"); !strings.Contains(got, "Create Processing") {
					t.Errorf("it is told at once: %s", got)
				}
				w.now = w.now.Add(5 * time.Minute)
				w.settle()
			}
			w.wants("trouble", w.operation("gvisor-a"), "Create Error", "0 of 1 nodes", test.says, "ERR_RETRYABLE_CONFIGURATION_PROBLEM")
			w.wants("the pool", w.condition(aPool("a"), "Ready"), "False Waiting", test.says)
			if w.node("a-000").Labels[names.Ready+"gvisor"] != "true" {
				t.Error("the node is no longer ready, though nothing is known")
			}
			w.runs, w.barred = nil, false
			w.settle()
			w.wants("mended", w.operation("gvisor-a"), "Create Succeeded 100")
		})
	}
}

// Of two objects for the same runtime on a pool the older one counts.
func TestTwins(t *testing.T) {
	w := prepared(t, 1)
	w.create(asked("a"))
	w.settle()
	w.now = w.now.Add(time.Minute)
	twin := asked("a")
	twin.Name = "another"
	w.create(twin)
	w.settle()
	w.wants("the first", w.operation("gvisor-a"), "Succeeded")
	w.wants("the second", w.operation("another"), "Error", "fairlead-system/gvisor-a asks for gvisor", "ERR_CONFIGURATION_PROBLEM")
	w.must(w.client.Delete(t.Context(), twin))
	w.settle()
	if w.node("a-000").Labels[names.Ready+"gvisor"] != "true" || w.class("gvisor") == nil {
		t.Error("the second took away what is the first's")
	}
	if w.runtime("another") != nil {
		t.Errorf("the second is still there: %s", w.operation("another"))
	}
	w.create(&gardener.ContainerRuntime{ObjectMeta: metav1.ObjectMeta{Name: "heir", Namespace: home}, Spec: asked("a").Spec})
	w.must(w.client.Delete(t.Context(), asked("a")))
	w.watch = func() {
		if w.node("a-000").Labels[names.Phase+"gvisor"] != "install.a" {
			t.Error("what another object takes over was taken away")
		}
	}
	w.settle()
	w.wants("the heir", w.operation("heir"), "Succeeded")
}

// An older one that is about to go is in nobody's way, however long that takes, and takes
// nothing along.
func TestTwinThatGoes(t *testing.T) {
	w := prepared(t, 1)
	w.create(asked("a"))
	w.settle()
	had := w.runtime("gvisor-a")
	had.Finalizers = append(had.Finalizers, heldBy)
	w.must(w.client.Update(t.Context(), had))
	w.must(w.client.Delete(t.Context(), had))
	w.now = w.now.Add(time.Minute)
	heir := asked("a")
	heir.Name = "heir"
	w.create(heir)
	w.watch = func() {
		if n := w.node("a-000"); n.Labels[names.Phase+"gvisor"] != "install.a" || n.Labels[names.Ready+"gvisor"] != "true" {
			t.Errorf("what another object takes over is taken away: %v", n.Labels)
		}
	}
	for _, r := range w.types {
		w.reconcile(r, home, "heir")
	}
	w.reconcile(w.nodes, "", "a") // before anybody has looked at the one that goes
	w.watch()
	w.settle()
	w.wants("the heir", w.operation("heir"), "Create Processing", "of another object, which is about to go")
	w.lets(had)
	w.settle()
	w.wants("the heir", w.operation("heir"), "Create Succeeded")
}

// Classes are those of all pools that have the type, by whichever of its names.
func TestClassesOfAnAlias(t *testing.T) {
	w := newWorld(t)
	w.create(aPayload("kata-containers", "1", "kata"))
	w.fleet("a", 1)
	w.fleet("b", 1)
	long, short := asked("a"), asked("b")
	long.Spec.Type, short.Spec.Type = "kata-containers", "kata"
	w.create(long, short)
	w.settle()
	for _, c := range []*gardener.ContainerRuntime{long, short} {
		w.wants(c.Name, w.operation(c.Name), "Succeeded")
	}
	uid := w.class("kata").UID
	w.must(w.client.Delete(t.Context(), long))
	w.watch = func() {
		if c := w.class("kata"); c == nil || c.UID != uid {
			t.Error("the class of the other pool was taken away")
		}
	}
	w.settle()
	w.watch = nil
	w.must(w.client.Delete(t.Context(), short))
	w.settle()
	if w.class("kata") != nil || w.runtime(short.Name) != nil {
		t.Error("something is left")
	}
}

// Two objects of other pools that choose the same nodes: who had one first keeps it, and
// the other says so, until they are told apart.
func TestObjectsThatChooseTheSameNode(t *testing.T) {
	w := newWorld(t)
	w.fleet("a", 2)
	w.create(aPayload("gvisor", "1", "runsc"))
	group := func(c *gardener.ContainerRuntime, name string) *gardener.ContainerRuntime {
		c.Spec.WorkerPool.Selector = metav1.LabelSelector{MatchLabels: map[string]string{name: "a"}}
		return c
	}
	first, second := group(asked("a"), "group"), group(asked("b"), "group")
	w.create(first)
	w.settle()
	w.create(second)
	w.settle()
	w.wants("the first", w.operation("gvisor-a"), "Succeeded")
	w.wants("the second", w.operation("gvisor-b"), "Error", "ERR_CONFIGURATION_PROBLEM", "0 of 2 nodes", "a-000: ContainerRuntime fairlead-system/gvisor-a chooses it, too, and has it")
	n := w.node("a-001")
	w.change(n, func() { n.Labels["other"], n.Labels["group"] = "a", "b" })
	w.change(second, func() { group(second, "other") })
	w.settle()
	for _, name := range []string{"gvisor-a", "gvisor-b"} {
		w.wants(name, w.operation(name), "Succeeded", "1 of 1 nodes")
	}
}

// Another release goes to nodes by the DaemonSet; another handler needs the class anew,
// which is refused while pods have it.
func TestUpgrade(t *testing.T) {
	w := newWorld(t)
	p := aPayload("gvisor", "1", "runsc")
	w.create(p)
	w.fleet("a", 1)
	w.create(asked("a"))
	w.settle()
	name := "gvisor"
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team"}, Spec: corev1.PodSpec{RuntimeClassName: &name}}
	w.create(user)
	uid := w.class("gvisor").UID
	next := aPayload("gvisor", "2", "runsc")
	next.Spec.Image = "registry.example/next@" + next.Spec.Image[len("registry.example/gvisor@"):]
	w.change(p, func() { p.Spec = next.Spec })
	w.settle()
	var sets appsv1.DaemonSetList
	w.must(w.client.List(t.Context(), &sets, client.MatchingLabels{names.Work: string(names.Install)}))
	if len(sets.Items) != 1 || sets.Items[0].Spec.Template.Spec.Containers[0].Image != next.Spec.Image {
		t.Errorf("%+v", sets.Items)
	}
	w.wants("release", w.operation("gvisor-a"), "gvisor 2 was verified on 1 of 1 nodes")
	// The class is gvisor by its name from the handler runsc, so a payload with another
	// handler has another class; the old one goes when nobody asks for it.
	c := w.class("gvisor")
	c.Handler = "older"
	w.must(w.client.Delete(t.Context(), c))
	c.ResourceVersion, c.UID = "", ""
	w.create(c)
	w.settle()
	w.wants("in use", w.operation("gvisor-a"), "pods use it: team/web")
	w.must(w.client.Delete(t.Context(), user))
	w.settle()
	if got := w.class("gvisor"); got.Handler != "runsc" || got.UID == uid {
		t.Errorf("class: %+v", got)
	}
}

// API servers fail and conflict; all comes to its end all the same.
func TestAPIErrors(t *testing.T) {
	w, _ := pooled(t, 5)
	calls := 0
	w.fail = func(verb string, o client.Object) error {
		if _, user := o.(*corev1.Pod); user {
			return nil
		}
		calls++
		switch calls % 5 {
		case 1:
			return apierrors.NewConflict(schema.GroupResource{Resource: "x"}, o.GetName(), errors.New(verb))
		case 3:
			return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, verb, schema.GroupResource{}, o.GetName(), "", 1, true)
		}
		return nil
	}
	for range 80 {
		w.step()
	}
	w.fail = nil
	w.settle()
	w.wants("ready", w.condition(aPool("a"), "Ready"), "True Installed: 1 runtimes are on 5 nodes")
	if calls < 20 {
		t.Errorf("only %d requests", calls)
	}
}

// An operator that comes back finds what an earlier one left, and stale objects go.
func TestStale(t *testing.T) {
	w := prepared(t, 1)
	stale := asked("a")
	stale.Name = "kata-containers-a"
	stale.Spec.Type = "kata-containers"
	stale.Labels = map[string]string{names.ManagedBy: names.Manager, names.Pool: "a", names.Type: "kata-containers"}
	stale.Finalizers = []string{gardener.Finalizer}
	w.create(aPool("a", "gvisor"), stale)
	w.settle()
	if w.runtime("kata-containers-a") != nil {
		t.Errorf("a stale object is still there: %s", w.operation("kata-containers-a"))
	}
	w.wants("ready", w.condition(aPool("a"), "Ready"), "True")
}

// A mistake in a pool takes nothing away.
func TestInvalidChangeKeeps(t *testing.T) {
	w, p := pooled(t, 1)
	w.settle()
	w.change(p, func() { p.Spec.CRI.ContainerRuntimes[0].Type = "gvisro" })
	w.settle()
	w.wants("valid", w.condition(p, "Valid"), "False Invalid", "spec.cri.containerRuntimes[0].type")
	if w.runtime("gvisor-a") == nil || w.node("a-000").Labels[names.Ready+"gvisor"] != "true" {
		t.Error("what was there has gone")
	}
	if got := fmt.Sprint(p.Status.Runtimes); got == "[]" {
		t.Error("the status forgets what is there")
	}
}
