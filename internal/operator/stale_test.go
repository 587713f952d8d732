package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
)

// cached is the client of the controllers: what it reads may be of before.
type cached struct {
	client.Client
	of *world
}

func (c *cached) from(o any) client.Reader {
	if r := c.of.behind[strings.TrimSuffix(fmt.Sprintf("%T", o), "List")]; r != nil {
		return r
	}
	return c.Client
}

func (c *cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.from(o).Get(ctx, key, o, opts...)
}

func (c *cached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	if o.ApplyOptions(opts); o.Continue != "" {
		return errors.New("continue list option is not supported by the cache")
	}
	err := c.from(list).List(ctx, list, opts...)
	list.SetContinue("continue-not-supported") // as caches do
	return err
}

// freeze keeps caches from hearing of changes of some kinds.
func (w *world) freeze(kinds ...client.ObjectList) {
	w.t.Helper()
	w.behind = map[string]client.Client{}
	for _, list := range kinds {
		w.must(w.client.List(w.t.Context(), list))
		was := fake.NewClientBuilder().WithScheme(Scheme())
		w.must(meta.EachListItem(list, func(item runtime.Object) error {
			was = was.WithRuntimeObjects(item.DeepCopyObject())
			return nil
		}))
		w.behind[strings.TrimSuffix(fmt.Sprintf("%T", list), "List")] = was.Build()
	}
}

// thaw has caches hear of everything.
func (w *world) thaw() { w.behind = nil }

func (w *world) steps(n int) {
	w.t.Helper()
	for range n {
		w.step()
	}
}

// A pool that has just been changed is not ready by what its ContainerRuntimes said
// before: who waits for the condition would go on too early.
func TestPoolIsNotReadyByAnOldAnswer(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.WorkerPool){
		"another configuration": func(p *v1alpha1.WorkerPool) {
			p.Spec.CRI.ContainerRuntimes[0].ProviderConfig = settings(`{"overhead":{"memory":"64Mi"}}`)
		},
		"a type less": func(p *v1alpha1.WorkerPool) { p.Spec.CRI.ContainerRuntimes = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w, p := pooled(t, 1)
			w.settle()
			w.freeze(&gardener.ContainerRuntimeList{})
			w.change(p, func() { edit(p) })
			w.reconcile(w.pools, "", "a")
			w.get(p)
			if c := meta.FindStatusCondition(p.Status.Conditions, "Ready"); c.Status == metav1.ConditionTrue && c.ObservedGeneration == p.Generation {
				t.Errorf("it is ready as it was before: %+v", c)
			}
			w.thaw()
			w.settle()
			w.wants("in the end", w.condition(p, "Ready"), "True")
		})
	}
}

// What caches have not heard of is taken away all the same, and kept until then.
func TestDeletionSeesMoreThanCaches(t *testing.T) {
	for name, test := range map[string]struct {
		until func(w *world) // what is there when caches stop to hear
		kinds []client.ObjectList
	}{
		"ContainerRuntimes": {func(*world) {}, []client.ObjectList{&gardener.ContainerRuntimeList{}}},
		"nodes":             {func(w *world) { w.reconcile(w.pools, "", "a") }, []client.ObjectList{&corev1.NodeList{}}},
		"classes":           {func(w *world) { w.reconcile(w.pools, "", "a") }, []client.ObjectList{&nodev1.RuntimeClassList{}}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := pooled(t, 1)
			test.until(w)
			w.freeze(test.kinds...)
			w.steps(4)
			w.must(w.client.Delete(t.Context(), p))
			w.steps(20)
			w.thaw()
			w.settle()
			if w.get(p) || w.class("gvisor") != nil {
				t.Error("the pool or its class is still there")
			}
			w.untouched()
		})
	}
}

// A look at nodes that began before a deletion marks none after it.
func TestDeletionWaitsForALookAtNodes(t *testing.T) {
	w, p := pooled(t, 2)
	w.reconcile(w.pools, "", "a")
	w.reconcile(w.types[0], home, "gvisor-a")
	ended := make(chan struct{})
	var once sync.Once
	w.fail = func(_ string, o client.Object) error {
		if _, is := o.(*corev1.Node); is {
			once.Do(func() {
				w.must(w.client.Delete(t.Context(), p))
				go func() {
					defer close(ended)
					w.reconcile(w.pools, "", "a")
					w.reconcile(w.types[0], home, "gvisor-a")
					w.reconcile(w.pools, "", "a")
				}()
				select { // who does not wait is soon done
				case <-ended:
				case <-time.After(time.Second):
				}
			})
		}
		return nil
	}
	w.reconcile(w.nodes, "", "a")
	<-ended
	w.fail = nil
	w.settle()
	if w.get(p) {
		t.Error("the pool is still there")
	}
	w.untouched()
}

// A node that the API server lets nobody change holds up no other.
func TestOneNodeHoldsUpNoOther(t *testing.T) {
	w, _ := pooled(t, 3)
	w.fail = func(_ string, o client.Object) error {
		if o.GetName() == "a-000" {
			return errors.New("somebody's webhook says no")
		}
		return nil
	}
	w.steps(30)
	for _, n := range []string{"a-001", "a-002"} {
		if w.node(n).Labels[names.Ready+"gvisor"] != "true" {
			t.Errorf("%s: %v", n, w.node(n).Labels)
		}
	}
	w.fail = nil
	w.settle()
	w.wants("in the end", w.condition(aPool("a"), "Ready"), "True Installed: 1 runtimes are on 3 nodes")
}

// However long an API server was away, what failed is tried again soon after.
func TestRetries(t *testing.T) {
	r, last := nodes.Retries(), time.Duration(0)
	for range 100 {
		last = r.When(reconcile.Request{})
	}
	if last > time.Minute || last < time.Second {
		t.Errorf("it is tried again after %v", last)
	}
}

// A ContainerRuntime of somebody else is told of where people look, and left alone.
func TestForeignRuntime(t *testing.T) {
	w := prepared(t, 1)
	theirs := asked("somebody")
	theirs.Name = "gvisor-a"
	p := aPool("a", "gvisor")
	w.create(theirs, p)
	w.settle()
	w.wants("taken", w.condition(p, "Valid"), "False Invalid", "ContainerRuntime fairlead-system/gvisor-a is there", "somebody else", "delete it")
	if got := w.runtime("gvisor-a"); got == nil || got.UID != theirs.UID || got.Annotations[gardener.AnnotationOperation] != "" || got.Annotations[gardener.AnnotationConfirm] != "" {
		t.Errorf("somebody else's: %+v", got)
	}
	w.must(w.client.Delete(t.Context(), theirs))
	w.settle()
	w.wants("in the end", w.condition(p, "Ready"), "True Installed")
}

// By the time at which something is taken away, one of its name may be somebody else's.
func TestNamesakesAreLeftAlone(t *testing.T) {
	w, p := pooled(t, 1)
	w.settle()
	w.freeze(&gardener.ContainerRuntimeList{}, &nodev1.RuntimeClassList{})
	w.change(p, func() { p.Spec.CRI.ContainerRuntimes = nil })
	had := w.runtime("gvisor-a")
	had.Finalizers = nil
	w.must(w.client.Update(t.Context(), had))
	w.must(w.client.Delete(t.Context(), had))
	theirs := asked("somebody")
	theirs.Name = "gvisor-a"
	w.create(theirs)
	w.reconcile(w.pools, "", "a")
	if got := w.runtime("gvisor-a"); got == nil || got.UID != theirs.UID || len(got.Annotations) > 0 {
		t.Errorf("a namesake: %+v", got)
	}
	class := w.class("gvisor")
	class.Labels = map[string]string{"now": "mine"}
	w.must(w.client.Update(t.Context(), class))
	if _, err := w.keeper.Prune(t.Context(), "gvisor", nil); err == nil || w.class("gvisor") == nil {
		t.Errorf("a class that is somebody else's by now: %v, %v", err, w.class("gvisor"))
	}
}
