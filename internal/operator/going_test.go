package operator

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/plugin"
)

const heldBy = "example.com/holds"

// delays has an object deleted that a finalizer holds back, as it does for what is
// deleted in the foreground.
func (w *world) delays(o client.Object) {
	w.t.Helper()
	if !w.get(o) {
		w.t.Fatalf("there is no %s", o.GetName())
	}
	o.SetFinalizers([]string{heldBy})
	w.must(w.client.Update(w.t.Context(), o))
	w.must(w.client.Delete(w.t.Context(), o))
}

// lets takes the finalizer off.
func (w *world) lets(o client.Object) {
	w.t.Helper()
	w.get(o)
	o.SetFinalizers(nil)
	w.must(w.client.Update(w.t.Context(), o))
}

func inHome(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: home, Name: name}
}

// What is being deleted is not what is wanted, though it is there: it is waited for, no
// node is begun with it, and it is made anew.
func TestWhatGoesIsMadeAnew(t *testing.T) {
	for name, find := range map[string]func(w *world) client.Object{
		"DaemonSet fairlead-system/fairlead-gvisor-a": func(*world) client.Object {
			return &appsv1.DaemonSet{ObjectMeta: inHome("fairlead-gvisor-a")}
		},
		"DaemonSet fairlead-system/fairlead-cleanup-gvisor-a": func(*world) client.Object {
			return &appsv1.DaemonSet{ObjectMeta: inHome("fairlead-cleanup-gvisor-a")}
		},
		"ConfigMap fairlead-system/fairlead-gvisor-a-": func(w *world) client.Object {
			var all corev1.ConfigMapList
			w.must(w.client.List(w.t.Context(), &all))
			return &all.Items[0]
		},
		"RuntimeClass gvisor": func(*world) client.Object {
			return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := pooled(t, 1)
			w.settle()
			o := find(w)
			w.delays(o)
			const says = " is being deleted and waits for its finalizers: " + heldBy + "; it is made anew when it is gone"
			w.settle()
			w.wants("it goes", w.operation("gvisor-a"), "Processing", name, says)
			w.wants("the pool", w.condition(p, "Ready"), "False Waiting: gvisor: ", name, says)
			late := w.node("a-000").DeepCopy()
			late.Name, late.ResourceVersion, late.Labels = "a-late", "", map[string]string{"group": "a"}
			w.create(late)
			w.settle()
			if _, ok := o.(*appsv1.DaemonSet); ok && w.node("a-late").Labels[names.Phase+"gvisor"] != "" {
				t.Errorf("a node is begun that no pod will come to: %v", w.node("a-late").Labels)
			}
			before := o.GetUID()
			w.lets(o)
			w.settle()
			w.wants("it is gone", w.operation("gvisor-a"), "Succeeded", "on 2 of 2 nodes")
			w.wants("the pool", w.condition(p, "Ready"), "True Installed")
			if !w.get(o) || o.GetUID() == before || o.GetDeletionTimestamp() != nil {
				t.Errorf("it was not made anew: %s", o.GetUID())
			}
		})
	}
}

// A class that goes is waited for also where another handler needs it made anew, and the
// object says so: the name is taken for as long as somebody holds it.
func TestClassThatGoesIsWaitedFor(t *testing.T) {
	w, _ := pooled(t, 1)
	w.settle()
	had := w.class("gvisor")
	had.Finalizers = []string{heldBy}
	w.must(w.client.Update(t.Context(), had))
	release := aPayload("gvisor", "1", "runsc")
	d := classes.Wanted("gvisor", plugin.Class{Name: "gvisor", Handler: "other"})
	had.Handler, had.Scheduling = d.Handler, d.Scheduling                                                     // as if an older release had made it
	had.Scheduling.Tolerations = []corev1.Toleration{{Key: "sandboxed", Operator: corev1.TolerationOpExists}} // and an administrator had added this
	w.must(w.client.Update(t.Context(), had))
	w.change(release, func() { release.Spec = aPayload("gvisor", "2", "runsc").Spec })
	w.settle()
	w.wants("it goes", w.operation("gvisor-a"), "Processing", "RuntimeClass gvisor is being deleted and waits for its finalizers: "+heldBy)
	w.lets(had)
	w.settle()
	w.wants("it is gone", w.operation("gvisor-a"), "Succeeded")
	if c := w.class("gvisor"); c == nil || c.Handler != "runsc" || c.UID == had.UID || !equality.Semantic.DeepEqual(c.Scheduling.Tolerations, had.Scheduling.Tolerations) {
		t.Errorf("%+v", c)
	}
}

// Also one that is made anew at once keeps what an administrator has added to it, and what
// comes under its name when it was taken away for good does not have it.
func TestClassThatIsMadeAnewKeepsTolerations(t *testing.T) {
	w, p := pooled(t, 1)
	w.settle()
	had := w.class("gvisor")
	had.Handler = "other"
	had.Scheduling.Tolerations = []corev1.Toleration{{Key: "sandboxed", Operator: corev1.TolerationOpExists}}
	w.must(w.client.Update(t.Context(), had))
	w.settle()
	if c := w.class("gvisor"); c == nil || c.UID == had.UID || !equality.Semantic.DeepEqual(c.Scheduling.Tolerations, had.Scheduling.Tolerations) {
		t.Errorf("%+v", c)
	}
	w.must(w.client.Delete(t.Context(), p))
	w.settle()
	w.create(aPool("a", "gvisor"))
	w.settle()
	if c := w.class("gvisor"); c == nil || len(c.Scheduling.Tolerations) > 0 {
		t.Errorf("%+v", c)
	}
}

// A removal waits for what cleans up as well, if somebody has that deleted: as long as it
// goes it cleans no node.
func TestRemovalWaitsForWhatCleans(t *testing.T) {
	w, p := pooled(t, 1)
	w.settle()
	cleanup := &appsv1.DaemonSet{ObjectMeta: inHome("fairlead-cleanup-gvisor-a")}
	w.delays(cleanup)
	w.must(w.client.Delete(t.Context(), p))
	w.settle()
	w.wants("it goes", w.operation("gvisor-a"), "Delete Processing 50: gvisor is still on 1 nodes, and what takes it away is about to go: DaemonSet fairlead-system/fairlead-cleanup-gvisor-a is being deleted", heldBy, "made anew")
	w.lets(cleanup)
	w.settle()
	w.untouched()
}

// collects does what a garbage collector does while an object is deleted in the foreground:
// it takes all that the object owns once, and then again and again what blocks it.
func (w *world) collects(name string) func() {
	begun := false
	return func() {
		c := w.runtime(name)
		if c == nil || !slices.Contains(c.Finalizers, metav1.FinalizerDeleteDependents) {
			return
		}
		blocked := false
		for _, list := range []client.ObjectList{&appsv1.DaemonSetList{}, &corev1.ConfigMapList{}} {
			w.must(w.client.List(w.t.Context(), list))
			w.must(meta.EachListItem(list, func(item runtime.Object) error {
				o := item.(client.Object)
				by := metav1.GetControllerOf(o)
				blocks := by.BlockOwnerDeletion != nil && *by.BlockOwnerDeletion
				blocked = blocked || blocks
				if by.UID != c.UID || begun && !blocks {
					return nil
				}
				if o.GetLabels()[names.Work] != "" { // and its pods with it
					w.must(w.client.DeleteAllOf(w.t.Context(), &corev1.Pod{}, client.InNamespace(home), client.MatchingLabels{names.Work: o.GetLabels()[names.Work]}))
				}
				return w.client.Delete(w.t.Context(), o)
			}))
		}
		if begun = true; !blocked {
			c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == metav1.FinalizerDeleteDependents })
			w.must(w.client.Update(w.t.Context(), c))
		}
	}
}

// What a deletion in the foreground takes away is made anew once, and cleans the nodes.
func TestDeletionInTheForeground(t *testing.T) {
	w := prepared(t, 3)
	w.create(asked("a"))
	w.settle()
	c := w.runtime("gvisor-a")
	c.Finalizers = append(c.Finalizers, metav1.FinalizerDeleteDependents)
	w.must(w.client.Update(t.Context(), c))
	w.must(w.client.Delete(t.Context(), c))
	w.watch = w.collects(c.Name)
	w.settle()
	w.untouched()
}

// A removal makes settings anew that somebody has deleted: no pod begins without them.
func TestRemovalHasItsSettings(t *testing.T) {
	w := prepared(t, 1)
	w.create(asked("a"))
	w.settle()
	w.lazy["a-000"] = true // what cleans has not begun
	w.must(w.client.Delete(t.Context(), w.runtime("gvisor-a")))
	w.settle()
	w.wants("it cleans", w.operation("gvisor-a"), "Delete Processing", "still on 1 nodes")
	w.must(w.client.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(home)))
	w.settle()
	cleanup := &appsv1.DaemonSet{ObjectMeta: inHome("fairlead-cleanup-gvisor-a")}
	if !w.get(cleanup) {
		t.Fatal("nothing cleans")
	}
	for _, v := range cleanup.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil && !w.get(&corev1.ConfigMap{ObjectMeta: inHome(v.ConfigMap.Name)}) {
			t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	delete(w.lazy, "a-000")
	w.settle()
	w.untouched()
}
