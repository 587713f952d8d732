package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/containerruntime"
	"fairlead.run/internal/operator/install"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugins"
	"fairlead.run/internal/operator/workerpool"
)

const home = "fairlead-system"

// world is a cluster in memory, with all controllers, and with what a controller
// manager and kubelets do about DaemonSets.
type world struct {
	t       *testing.T
	client  client.Client
	keeper  *classes.Keeper
	pools   *workerpool.Reconciler
	nodes   *nodes.Reconciler
	types   []*containerruntime.Reconciler
	now     time.Time
	lazy    map[string]bool                   // nodes whose pods say nothing
	linger  map[string]bool                   // nodes on which pods take long to end
	results map[string]*payload.InstallResult // by node, of pods that fail
	runs    func(*corev1.Pod)                 // fills in the status, if it is not nil
	barred  bool                              // no pod is made any more
	watch   func()                            // is called after each step
	fail    func(verb string, o client.Object) error
	behind  map[string]client.Client // of kinds that caches have not heard of since, as they were
	born    int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), lazy: map[string]bool{}, linger: map[string]bool{}, results: map[string]*payload.InstallResult{}}
	hit := func(verb string, o client.Object) error {
		if w.fail == nil {
			return nil
		}
		return w.fail(verb, o)
	}
	w.client = fake.NewClientBuilder().WithScheme(Scheme()).
		WithStatusSubresource(&v1alpha1.WorkerPool{}, &gardener.ContainerRuntime{}, &corev1.Pod{}, &appsv1.DaemonSet{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := hit("create", o); err != nil {
					return err
				}
				if o.GetUID() == "" {
					w.born++
					o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.born)))
				}
				if at := o.GetCreationTimestamp(); at.IsZero() {
					o.SetCreationTimestamp(metav1.NewTime(w.now))
				}
				if o.GetGeneration() == 0 {
					o.SetGeneration(1)
				}
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := hit("patch", o); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := hit("patch "+sub, o); err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	w.keeper = &classes.Keeper{Client: w.client, Live: w.client}
	set := plugins.All()
	clock := func() time.Time { return w.now }
	cached, passes := &cached{w.client, w}, &nodes.Passes{}
	w.keeper.Client = cached
	w.pools = &workerpool.Reconciler{Client: cached, Live: w.client, Namespace: home, Plugins: set, Passes: passes, Now: clock}
	w.nodes = &nodes.Reconciler{Client: cached, Live: w.client, Namespace: home, Plugins: set, Classes: w.keeper, Passes: passes, Now: clock}
	for _, p := range set.All() {
		r := &containerruntime.Reconciler{Client: cached, Plugin: p, Plugins: set, Now: clock}
		w.types = append(w.types, containerruntime.OnNodes(r, w.keeper, install.Cluster{Account: "fairlead-installer"}, passes))
	}
	return w
}

// prepared is a world with the payload of gVisor and the nodes that aPool("a") chooses, of
// which nobody asks for anything.
func prepared(t *testing.T, nodes int) *world {
	t.Helper()
	w := newWorld(t)
	w.create(aPayload("gvisor", "1", "runsc"))
	w.fleet("a", nodes)
	return w
}

// pooled is one in which a pool asks for it as well, and no controller has looked yet.
func pooled(t *testing.T, nodes int) (*world, *v1alpha1.WorkerPool) {
	t.Helper()
	w, p := prepared(t, nodes), aPool("a", "gvisor")
	w.create(p)
	return w, p
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(all ...client.Object) {
	w.t.Helper()
	for _, o := range all {
		w.must(w.client.Create(w.t.Context(), o))
	}
}

// get reads an object anew; it says whether there is one.
func (w *world) get(o client.Object) bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
	w.must(client.IgnoreNotFound(err))
	return err == nil
}

// change edits an object as a user would.
func (w *world) change(o client.Object, edit func()) {
	w.t.Helper()
	if !w.get(o) {
		w.t.Fatalf("there is no %s", o.GetName())
	}
	edit()
	o.SetGeneration(o.GetGeneration() + 1)
	w.must(w.client.Update(w.t.Context(), o))
}

func (w *world) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.get(n)
	return n
}

func (w *world) runtime(name string) *gardener.ContainerRuntime {
	c := &gardener.ContainerRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}}
	if !w.get(c) {
		return nil
	}
	return c
}

// step has every controller look at everything once, in some order.
func (w *world) step() {
	w.t.Helper()
	ctx := w.t.Context()
	w.now = w.now.Add(time.Second)
	var pools v1alpha1.WorkerPoolList
	w.must(w.client.List(ctx, &pools))
	names := map[string]bool{}
	for i := range pools.Items {
		names[pools.Items[i].Name] = true
		w.reconcile(w.pools, "", pools.Items[i].Name)
	}
	var runtimes gardener.ContainerRuntimeList
	w.must(w.client.List(ctx, &runtimes))
	for i := range runtimes.Items {
		c := &runtimes.Items[i]
		names[placed.As(c).Spec.WorkerPool.Name] = true
		for _, r := range w.types {
			w.reconcile(r, c.Namespace, c.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w.reconcile(w.nodes, "", name)
	}
	w.collect()
	w.kubelets()
	if w.watch != nil {
		w.watch()
	}
}

func (w *world) reconcile(r reconcile.Reconciler, namespace, name string) {
	w.t.Helper()
	_, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	if err != nil && w.fail == nil {
		w.t.Errorf("reconcile %s/%s: %v", namespace, name, err)
	}
}

// settle takes steps until one changes nothing.
func (w *world) settle() {
	w.t.Helper()
	for range 100 {
		before := w.print()
		w.step()
		if w.print() == before {
			return
		}
	}
	w.t.Fatal("it does not come to rest")
}

// print is the versions of all objects.
func (w *world) print() string {
	var out strings.Builder
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &corev1.PodList{}, &appsv1.DaemonSetList{}, &corev1.ConfigMapList{}, &nodev1.RuntimeClassList{},
		&v1alpha1.WorkerPoolList{}, &gardener.ContainerRuntimeList{},
	} {
		w.must(w.client.List(w.t.Context(), list))
		fmt.Fprintf(&out, "%T", list)
		w.must(meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			_, err := fmt.Fprint(&out, " ", o.GetName(), o.GetResourceVersion())
			return err
		}))
	}
	return out.String()
}

// collect deletes what belongs to ContainerRuntimes that are gone.
func (w *world) collect() {
	ctx := w.t.Context()
	var sets appsv1.DaemonSetList
	w.must(w.client.List(ctx, &sets))
	for i := range sets.Items {
		if w.runtime(sets.Items[i].OwnerReferences[0].Name) == nil {
			w.must(w.client.Delete(ctx, &sets.Items[i]))
		}
	}
	var maps corev1.ConfigMapList
	w.must(w.client.List(ctx, &maps))
	for i := range maps.Items {
		if w.runtime(maps.Items[i].OwnerReferences[0].Name) == nil {
			w.must(w.client.Delete(ctx, &maps.Items[i]))
		}
	}
}

// kubelets run the pods of DaemonSets.
func (w *world) kubelets() {
	ctx := w.t.Context()
	var sets appsv1.DaemonSetList
	var all corev1.NodeList
	var pods corev1.PodList
	w.must(w.client.List(ctx, &sets))
	w.must(w.client.List(ctx, &all))
	w.must(w.client.List(ctx, &pods, client.HasLabels{names.Work}))
	wanted := map[string]bool{}
	for i := range sets.Items {
		for j := range all.Items {
			if pod := &sets.Items[i].Spec.Template.Spec; !fits(pod.NodeSelector, all.Items[j].Labels) || !likes(pod.Affinity, all.Items[j].Labels) {
				continue
			}
			name := sets.Items[i].Name + "-" + all.Items[j].Name
			wanted[name] = true
			if sets.Items[i].DeletionTimestamp != nil {
				continue // no pod is made for it any more, and those that are there stay until it is gone
			}
			w.pod(name, &sets.Items[i], all.Items[j].Name)
		}
	}
	for i := range pods.Items {
		if !wanted[pods.Items[i].Name] && !w.linger[pods.Items[i].Spec.NodeName] {
			w.must(client.IgnoreNotFound(w.client.Delete(ctx, &pods.Items[i])))
		}
	}
}

func fits(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// likes is what a scheduler makes of an affinity for labels that have one of some values.
func likes(a *corev1.Affinity, labels map[string]string) bool {
	if a == nil {
		return true
	}
	for _, r := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions {
		// The nodes of these tests tell no architecture unless it matters.
		if is := labels[r.Key]; r.Operator != corev1.NodeSelectorOpIn || is != "" && !slices.Contains(r.Values, is) {
			return false
		}
	}
	return true
}

// pod is one of a DaemonSet on a node. It begins in one step, and is ready in a later.
func (w *world) pod(name string, ds *appsv1.DaemonSet, node string) {
	ctx := w.t.Context()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ds.Namespace}}
	err := w.client.Get(ctx, client.ObjectKeyFromObject(p), p)
	if apierrors.IsNotFound(err) && w.barred {
		return
	}
	if apierrors.IsNotFound(err) {
		p.Labels, p.Annotations, p.Spec = ds.Spec.Template.Labels, ds.Spec.Template.Annotations, *ds.Spec.Template.Spec.DeepCopy()
		p.Spec.NodeName = node
		w.create(p)
		return
	}
	w.must(err)
	rolls := ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType
	if rolls && p.Annotations[names.AnnotationRevision] != ds.Spec.Template.Annotations[names.AnnotationRevision] {
		w.must(w.client.Delete(ctx, p))
		return
	}
	was := p.DeepCopy()
	p.Status.Conditions, p.Status.ContainerStatuses = nil, nil
	switch r := w.results[node]; {
	case w.runs != nil:
		w.runs(p)
	case w.lazy[node]:
	case r != nil:
		told := *r
		told.APIVersion, told.Kind = payload.APIVersion, payload.KindResult
		text, err := json.Marshal(told)
		w.must(err)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "install", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(text)}}}}
	default:
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if !equality.Semantic.DeepEqual(was.Status, p.Status) {
		w.must(w.client.Status().Patch(ctx, p, client.MergeFrom(was)))
	}
}

// fleet is nodes of a pool.
func (w *world) fleet(pool string, n int) {
	for i := range n {
		w.create(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", pool, i), Labels: map[string]string{"group": pool}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
}

func aPool(name string, types ...string) *v1alpha1.WorkerPool {
	p := &v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WorkerPoolSpec{
			NodeSelector: map[string]string{"group": name}, MachineImage: v1alpha1.MachineImage{Name: "ubuntu"}, MachineType: "m5.metal",
			Architecture: "amd64", CRI: v1alpha1.CRI{Name: v1alpha1.CRIContainerd},
		},
	}
	for _, t := range types {
		p.Spec.CRI.ContainerRuntimes = append(p.Spec.CRI.ContainerRuntimes, v1alpha1.PoolRuntime{Type: t})
	}
	return p
}

func aPayload(typ, version string, handlers ...string) *v1alpha1.RuntimePayload {
	sum := strings.Repeat("ab", 32)
	p := &v1alpha1.RuntimePayload{ObjectMeta: metav1.ObjectMeta{Name: typ}}
	p.Spec.Image = "registry.example/" + typ + "@sha256:" + sum
	p.Spec.Manifest = payload.RuntimePayload{
		APIVersion: payload.APIVersion, Kind: payload.KindPayload, Type: typ, Version: version, OS: "linux", Architectures: []string{"amd64"},
		Files:   []payload.File{{Path: "shim", Mode: "0755", Size: 1, SHA256: sum}},
		Configs: []payload.Config{{Path: "runsc.toml", Content: "binary_name = \"x\"\n"}},
	}
	for _, h := range handlers {
		p.Spec.Manifest.Handlers = append(p.Spec.Manifest.Handlers, payload.Handler{Name: h, Containerd: &payload.ContainerdHandler{RuntimeType: "io.containerd." + h + ".v1", RuntimePath: "shim"}})
	}
	return p
}

func (w *world) class(name string) *nodev1.RuntimeClass {
	c := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !w.get(c) {
		return nil
	}
	return c
}

// condition is one of a pool, as text.
func (w *world) condition(p *v1alpha1.WorkerPool, typ string) string {
	w.get(p)
	for _, c := range p.Status.Conditions {
		if c.Type == typ {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "none"
}

// wants checks a text.
func (w *world) wants(what, got string, words ...string) {
	w.t.Helper()
	for _, word := range words {
		if !strings.Contains(got, word) {
			w.t.Errorf("%s: %q is not in %q", what, word, got)
		}
	}
}

// untouched says that nothing of gvisor-a is left, nor on the first node of its pool.
func (w *world) untouched() {
	w.t.Helper()
	if w.runtime("gvisor-a") != nil || len(w.node("a-000").Labels) != 1 {
		w.t.Errorf("still there: %s, %v", w.operation("gvisor-a"), w.node("a-000").Labels)
	}
}

func (w *world) operation(name string) string {
	c := w.runtime(name)
	if c == nil || c.Status.LastOperation == nil {
		return "none"
	}
	op := c.Status.LastOperation
	text := fmt.Sprintf("%s %s %d: %s", op.Type, op.State, op.Progress, op.Description)
	if e := c.Status.LastError; e != nil {
		text += fmt.Sprintf(" %v", e.Codes)
	}
	return text
}
