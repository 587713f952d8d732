package containerruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/going"
	"fairlead.run/internal/operator/install"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/validate"
)

var providerConfig = field.NewPath("spec", "providerConfig")

// onNodes installs by pods on the nodes of this cluster.
type onNodes struct {
	client  client.Client
	plugins plugin.Set
	classes *classes.Keeper
	cluster install.Cluster
	passes  *nodes.Passes
	now     func() time.Time
	since   map[string]map[string]time.Time // nodes that wait for a pod, by DaemonSet
	tidied  map[string]string               // the settings beside which there are no others, by DaemonSet
	told    map[string]bool                 // the events that were made, by their names
}

// errTaken says that the owner of a DaemonSet is another object.
var errTaken = errors.New("is of another object, which is about to go or somebody else's")

// OnNodes has a reconciler install by pods on the nodes of this cluster.
func OnNodes(r *Reconciler, keeper *classes.Keeper, cluster install.Cluster, passes *nodes.Passes) *Reconciler {
	r.engine = &onNodes{client: r.Client, plugins: r.Plugins, classes: keeper, cluster: cluster, passes: passes, now: r.Now, since: map[string]map[string]time.Time{}, tidied: map[string]string{}, told: map[string]bool{}}
	return r
}

// pools are those of the cluster.
func (e *onNodes) pools(ctx context.Context) (map[string]*v1alpha1.WorkerPool, error) {
	var list v1alpha1.WorkerPoolList
	if err := e.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list WorkerPools: %w", err)
	}
	out := map[string]*v1alpha1.WorkerPool{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out, nil
}

// order is what is to be installed.
func (e *onNodes) order(t *task) *install.Order {
	o := &install.Order{Runtime: t.object, Type: t.about.Type, Payload: t.payload, Settings: t.settings.Install, CRI: criOf(t.pool), Cluster: e.cluster}
	o.Architectures = validate.Architectures(t.pool, &t.payload.Spec.Manifest)
	if t.pool != nil {
		o.Restart, o.Image = t.pool.Spec.Restart, t.pool.Spec.MachineImage.Name
	}
	return o
}

// apply makes the DaemonSets and classes, and counts the nodes.
func (e *onNodes) apply(ctx context.Context, t *task) (outcome, error) {
	order := e.order(t)
	if len(order.Handlers()) == 0 {
		return outcome{}, misconfigured(fmt.Errorf("RuntimePayload %s has no handler that is asked for and that %s can have: add one to it, or ask for others", t.about.Type, order.CRI))
	}
	if err := e.distribution(ctx, t, order); err != nil {
		return outcome{}, err
	}
	revision, err := e.daemonSets(ctx, order, names.Install, names.Cleanup)
	if errors.Is(err, errTaken) {
		return outcome{progress: 5, says: err.Error()}, nil
	}
	var held []string
	if err == nil {
		held, err = e.keep(ctx, t)
	}
	if errors.Is(err, going.Err) {
		return outcome{progress: 5, says: going.Anew(err)}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	o, err := e.count(ctx, t, revision)
	if err == nil && o.done {
		err = e.tidy(ctx, order)
	}
	if o.conditions = append(o.conditions, t.classes.condition(held)); len(held) > 0 {
		o.later = again
	}
	if err != nil {
		return o, err
	}
	return overruled(o, t.classes)
}

// distribution finds out how the CRI runtime is set up on all nodes that an order is
// for, or will be.
func (e *onNodes) distribution(ctx context.Context, t *task, order *install.Order) error {
	all, err := e.members(ctx, t.object)
	if err != nil {
		return err
	}
	carriers, err := carriers(ctx, e.client, t.object, t.about.Type)
	if err != nil {
		return err
	}
	outside, err := e.unclaimed(ctx, t)
	if err != nil {
		return err
	}
	if order.Distribution, err = install.Distribution(order.CRI, slices.Concat(all, carriers, outside)); err != nil {
		return misconfigured(err)
	}
	return nil
}

// daemonSets has those for some work as they are wanted, and says which revision the
// installer's pods are to have.
func (e *onNodes) daemonSets(ctx context.Context, order *install.Order, all ...names.PhaseOf) (string, error) {
	settings, err := order.SettingsMap()
	if err != nil {
		return "", err
	}
	if err := e.settings(ctx, settings); err != nil {
		return "", err
	}
	revision := ""
	for _, work := range all {
		want, err := order.DaemonSet(work, settings.Name)
		if err != nil {
			return "", err
		}
		if work == names.Install {
			revision = want.Spec.Template.Annotations[names.AnnotationRevision]
		}
		if err := e.daemonSet(ctx, want); err != nil {
			return "", err
		}
	}
	return revision, nil
}

// tidy deletes settings that nothing mounts any more: each change of an object's has
// made some. They are looked for once for each.
func (e *onNodes) tidy(ctx context.Context, o *install.Order) error {
	now, err := o.SettingsMap()
	if err != nil {
		return err
	}
	key := now.Namespace + "/" + o.DaemonSetName(names.Install)
	if e.tidied[key] == now.Name {
		return nil
	}
	mounted, err := e.mounted(ctx, o)
	if err != nil {
		return err
	}
	var all corev1.ConfigMapList
	if err := e.client.List(ctx, &all, client.InNamespace(now.Namespace), client.MatchingLabels(now.Labels)); err != nil {
		return fmt.Errorf("list the settings of ContainerRuntime %s/%s: %w", now.Namespace, o.Runtime.Name, err)
	}
	left := false
	for i := range all.Items {
		m := &all.Items[i]
		if m.Name == now.Name || !metav1.IsControlledBy(m, o.Runtime) {
			continue
		}
		if mounted[m.Name] {
			left = true
			continue
		}
		if err := e.client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the old settings %s/%s: %w", m.Namespace, m.Name, err)
		}
	}
	if !left {
		e.tidied[key] = now.Name
	}
	return nil
}

// mounted are the ConfigMaps that DaemonSets of an order and their pods mount.
func (e *onNodes) mounted(ctx context.Context, o *install.Order) (map[string]bool, error) {
	out := map[string]bool{}
	add := func(spec *corev1.PodSpec) {
		for i := range spec.Volumes {
			if m := spec.Volumes[i].ConfigMap; m != nil {
				out[m.Name] = true
			}
		}
	}
	for _, work := range []names.PhaseOf{names.Install, names.Cleanup} {
		ds := &appsv1.DaemonSet{}
		if err := e.client.Get(ctx, client.ObjectKey{Namespace: o.Runtime.Namespace, Name: o.DaemonSetName(work)}, ds); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get DaemonSet %s: %w", o.DaemonSetName(work), err)
		}
		add(&ds.Spec.Template.Spec)
		pods, err := e.pods(ctx, o.Runtime, o.Type, work)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			add(&pods[i].Spec)
		}
	}
	return out, nil
}

// keep has the classes as they were agreed on. Those of handlers that are gone go when
// no pod has them any more; until then they are held.
func (e *onNodes) keep(ctx context.Context, t *task) (held []string, err error) {
	keep := map[string]bool{}
	for _, c := range t.classes.classes {
		keep[c.Name] = true
		err := e.classes.Ensure(ctx, classes.Wanted(t.about.Type, c))
		if errors.Is(err, classes.ErrForeign) {
			return nil, misconfigured(err)
		}
		if errors.Is(err, classes.ErrInUse) {
			return nil, problem{err, gardener.CodeRetryable}
		}
		if err != nil {
			return nil, err
		}
	}
	if t.classes.unsure {
		return nil, nil
	}
	return e.classes.Prune(ctx, t.about.Type, keep)
}

// settings has a ConfigMap that never changes, and asks the API server for nothing as long
// as the cache has it.
func (e *onNodes) settings(ctx context.Context, want *corev1.ConfigMap) error {
	have := &corev1.ConfigMap{}
	err := e.client.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		return e.create(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("get ConfigMap %s/%s: %w", want.Namespace, want.Name, err)
	}
	return going.Of(have)
}

// create makes an object, of which a cache may not have heard.
func (e *onNodes) create(ctx context.Context, o client.Object) error {
	err := e.client.Create(ctx, o)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
}

// daemonSet makes a DaemonSet, or has it as it is wanted. What others have added and
// nobody here says anything about stays.
func (e *onNodes) daemonSet(ctx context.Context, want *appsv1.DaemonSet) error {
	have := &appsv1.DaemonSet{}
	err := e.client.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		return e.create(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("get DaemonSet %s: %w", want.Name, err)
	}
	if err := going.Of(have); err != nil {
		return err
	}
	if owner := metav1.GetControllerOf(have); owner == nil || owner.UID != want.OwnerReferences[0].UID {
		return fmt.Errorf("DaemonSet %s/%s %w; delete it if it stays", have.Namespace, have.Name, errTaken)
	}
	// What others change is seen field by field, and what is no longer wanted, such as a
	// pull secret, by the revision: a field that is empty counts as one that nobody wants.
	same := want.Spec.Template.Annotations[names.AnnotationRevision] == have.Spec.Template.Annotations[names.AnnotationRevision]
	if same && equality.Semantic.DeepDerivative(want.Spec, have.Spec) && equality.Semantic.DeepDerivative(want.Labels, have.Labels) {
		return nil
	}
	changed := have.DeepCopy()
	changed.Labels, changed.Spec.Template, changed.Spec.UpdateStrategy = want.Labels, want.Spec.Template, want.Spec.UpdateStrategy
	if err := e.client.Update(ctx, changed); err != nil {
		return fmt.Errorf("update DaemonSet %s: %w", want.Name, err)
	}
	return nil
}

// count says on how many nodes the runtime was verified, and what went wrong.
func (e *onNodes) count(ctx context.Context, t *task, revision string) (outcome, error) {
	members, err := e.members(ctx, t.object)
	if err != nil {
		return outcome{}, err
	}
	outside, err := e.unclaimed(ctx, t)
	if err != nil {
		return outcome{}, err
	}
	pods, err := e.pods(ctx, t.object, t.about.Type, names.Install)
	if err != nil {
		return outcome{}, err
	}
	current, before := map[string]bool{}, false
	for i := range pods {
		// What a pod of another revision has verified is another release.
		p := &pods[i]
		if p.Annotations[names.AnnotationRevision] != revision {
			before = true
		} else if nodes.Ready(p) { // one that was rolled back serves the release before
			current[p.Spec.NodeName] = true
		}
	}
	all, ready := len(members)+len(outside), 0
	for i := range members {
		if current[members[i].Name] && members[i].Labels[names.Ready+t.about.Type] == "true" {
			ready++
		}
	}
	o := progress(t, all, ready)
	if before {
		says, err := e.turns(ctx, t.object, members, current)
		if err != nil {
			return outcome{}, err
		}
		o.says += says
		o.conditions[0].Message = o.says
	}
	if passed := e.passes.Passed(t.object.Spec.WorkerPool.Name); len(passed) > 0 && !o.done {
		o.says += "; the others do not wait for " + classes.Some(passed)
		o.conditions[0].Message = o.says
	}
	trouble, err := e.wrong(ctx, e.order(t), names.Install, pods)
	if err != nil {
		return outcome{}, err
	}
	contested, err := e.contested(ctx, t, members)
	if err != nil {
		return outcome{}, err
	}
	unfit := misfits(slices.Concat(members, outside), validate.MachinesOf(t.pool, &t.payload.Spec.Manifest))
	if err := e.tell(ctx, t.object, unfit); err != nil {
		return outcome{}, err
	}
	trouble = slices.Concat(trouble, contested, unfit)
	text, err := json.Marshal(map[string]any{"apiVersion": "fairlead.run/v1alpha1", "kind": "RuntimeProgress", "version": t.payload.Spec.Manifest.Version, "nodes": all, "readyNodes": ready})
	if err != nil {
		return outcome{}, fmt.Errorf("write the status of a provider: %w", err)
	}
	o.status = &runtime.RawExtension{Raw: text}
	if len(trouble) == 0 {
		return o, nil
	}
	o.done = false
	o.conditions[0].Status, o.conditions[0].Reason = "False", "InstallFailed"
	return o, e.sum(trouble, o.says)
}

// wrong is what keeps a DaemonSet from its work: on nodes, and in the cluster.
func (e *onNodes) wrong(ctx context.Context, o *install.Order, work names.PhaseOf, pods []corev1.Pod) ([]failure, error) {
	waiting, err := inPhase(ctx, e.client, o.Runtime, o.Type, work)
	if err != nil {
		return nil, err
	}
	if work == names.Install { // the DaemonSet makes none for the others, which are told of by themselves
		waiting = slices.DeleteFunc(waiting, func(n corev1.Node) bool { return !validate.Fits(&n, o.Architectures) })
	}
	return append(e.failures(pods, waiting), e.unmade(o.Runtime.Namespace, o.DaemonSetName(work), waiting, pods)...), nil
}

// progress is how far it is with so many nodes ready of all. A pool without nodes is
// done, as who waits for it would wait for a machine that nobody wants yet; nothing
// was verified there, and the condition does not say so.
func progress(t *task, all, ready int) outcome {
	about := t.about.Type + " " + t.payload.Spec.Manifest.Version
	c := gardener.Condition{Type: "NodesReady", Status: "False", Reason: "Installing"}
	o := outcome{done: ready == all, progress: 10, says: fmt.Sprintf("%s was verified on %d of %d nodes", about, ready, all)}
	switch {
	case all == 0:
		o.says = fmt.Sprintf("pool %s has no nodes; %s comes to each that it gets", t.object.Spec.WorkerPool.Name, about)
		c.Status, c.Reason = "Unknown", "NoNodes"
	case o.done:
		c.Status, c.Reason = "True", "Verified"
	default:
		o.progress += int32(85 * ready / all)
	}
	c.Message = o.says
	o.conditions = []gardener.Condition{c}
	return o
}

// unclaimed are the nodes that a pool chooses and that nobody has put into a pool yet.
func (e *onNodes) unclaimed(ctx context.Context, t *task) ([]corev1.Node, error) {
	if t.pool == nil || len(t.pool.Spec.NodeSelector) == 0 || t.pool.DeletionTimestamp != nil {
		return nil, nil
	}
	var list corev1.NodeList
	if err := e.client.List(ctx, &list, client.MatchingLabels(t.pool.Spec.NodeSelector)); err != nil {
		return nil, fmt.Errorf("list the nodes that pool %s chooses: %w", t.pool.Name, err)
	}
	return slices.DeleteFunc(byName(list.Items), func(o corev1.Node) bool { return o.Labels[gardener.LabelPool] != "" || o.DeletionTimestamp != nil }), nil
}

// byName puts nodes in order. A cache lists them in any, and messages name the first few: a
// status would be another one with each look.
func byName(all []corev1.Node) []corev1.Node {
	slices.SortFunc(all, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// members are the nodes of the object's pool.
func (e *onNodes) members(ctx context.Context, c *gardener.ContainerRuntime) ([]corev1.Node, error) {
	selector, err := metav1.LabelSelectorAsSelector(&c.Spec.WorkerPool.Selector)
	if err != nil {
		return nil, misconfigured(fmt.Errorf("read spec.workerPool.selector: %w", err))
	}
	var list corev1.NodeList
	if err := e.client.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the nodes of pool %s: %w", c.Spec.WorkerPool.Name, err)
	}
	return byName(list.Items), nil
}

// pods are those of the installer that do some work for an object.
func (e *onNodes) pods(ctx context.Context, c *gardener.ContainerRuntime, typ string, work names.PhaseOf) ([]corev1.Pod, error) {
	var pods corev1.PodList
	fits := client.MatchingLabels{names.Type: typ, names.Pool: c.Spec.WorkerPool.Name, names.Work: string(work)}
	if err := e.client.List(ctx, &pods, client.InNamespace(c.Namespace), fits); err != nil {
		return nil, fmt.Errorf("list the installer's pods: %w", err)
	}
	return pods.Items, nil
}

// remove waits until nobody uses the runtime and it is off all nodes, then takes away
// the classes, if the object is the last of its type.
func (e *onNodes) remove(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error) {
	others, err := e.others(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if o, inherited := inherited(others, c); inherited {
		return o, nil
	}
	last := len(others) == 0
	if last {
		if err := e.unused(ctx, c, typ); err != nil {
			return outcome{}, err
		}
	}
	left, err := e.left(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if len(left) > 0 {
		err := e.cleaner(ctx, c, typ, len(left))
		if errors.Is(err, going.Err) {
			return outcome{progress: 50, says: fmt.Sprintf("%s is still on %d nodes, and what takes it away is about to go: %s", typ, len(left), going.Anew(err))}, nil
		}
		if err != nil {
			return outcome{}, err
		}
		return e.waiting(ctx, c, typ, left)
	}
	if last {
		if err := e.classes.Remove(ctx, typ); err != nil {
			return outcome{}, err
		}
	}
	return outcome{done: true, says: typ + " is off all nodes of the pool"}, nil
}

// others are the objects beside one that ask for the type, by whichever of its names, as
// the API server has them: by one that a cache still has, though it is gone, nothing would
// ever be taken away.
func (e *onNodes) others(ctx context.Context, c *gardener.ContainerRuntime, typ string) ([]gardener.ContainerRuntime, error) {
	var all gardener.ContainerRuntimeList
	if err := e.classes.Live.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	return slices.DeleteFunc(placed.All(all.Items), func(o gardener.ContainerRuntime) bool {
		return o.UID == c.UID || o.DeletionTimestamp != nil || e.plugins.Canonical(o.Spec.Type) != typ
	}), nil
}

// inherited says that another object asks for the type on the same pool: what is on the
// nodes is its, from now on if it was not before.
func inherited(others []gardener.ContainerRuntime, c *gardener.ContainerRuntime) (outcome, bool) {
	for i := range others {
		if o := &others[i]; o.Spec.WorkerPool.Name == c.Spec.WorkerPool.Name {
			return outcome{done: true, says: "what is on the nodes is that of ContainerRuntime " + o.Name}, true
		}
	}
	return outcome{}, false
}

// unused refuses while pods have a class of the type, or on its nodes one of somebody else
// with a handler of the type.
func (e *onNodes) unused(ctx context.Context, c *gardener.ContainerRuntime, typ string) error {
	all, err := carriers(ctx, e.client, c, typ)
	if err != nil {
		return err
	}
	on := map[string]bool{}
	for i := range all {
		on[all[i].Name] = true
	}
	users, err := e.classes.UsersOf(ctx, typ, on)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return problem{fmt.Errorf("pods use %s, which cannot be taken away under them: %s; delete them, or have them use another class", typ, classes.Some(users)), gardener.CodeCleanup}
	}
	return nil
}

// carriers are the nodes that have something of the runtime for the pool, whether or
// not they are still in it.
func carriers(ctx context.Context, from client.Reader, c *gardener.ContainerRuntime, typ string) ([]corev1.Node, error) {
	var out []corev1.Node
	for _, phase := range []names.PhaseOf{names.Install, names.Leaving, names.Cleanup} {
		some, err := inPhase(ctx, from, c, typ, phase)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

func inPhase(ctx context.Context, from client.Reader, c *gardener.ContainerRuntime, typ string, phase names.PhaseOf) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := from.List(ctx, &list, client.MatchingLabels{names.Phase + typ: phase.Value(c.Spec.WorkerPool.Name)}); err != nil {
		return nil, fmt.Errorf("list the nodes with %s: %w", typ, err)
	}
	return byName(list.Items), nil
}

// left are the nodes that have something of a runtime that is being taken away. There
// are none only if the API server has none, and nobody is about to mark one.
func (e *onNodes) left(ctx context.Context, c *gardener.ContainerRuntime, typ string) ([]corev1.Node, error) {
	out, err := carriers(ctx, e.client, c, typ)
	if err != nil || len(out) > 0 {
		return out, err
	}
	if err := e.passes.Wait(ctx, c.Spec.WorkerPool.Name); err != nil {
		return nil, err
	}
	return carriers(ctx, e.classes.Live, c, typ)
}

// cleaner makes what cleans up if somebody has taken that away, or its settings, without
// which no pod begins: nodes would be waited for that nobody cleans.
func (e *onNodes) cleaner(ctx context.Context, c *gardener.ContainerRuntime, typ string, left int) error {
	t := &task{object: c, about: plugin.Description{Type: typ}, payload: &v1alpha1.RuntimePayload{}}
	have := &appsv1.DaemonSet{}
	err := e.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: e.order(t).DaemonSetName(names.Cleanup)}, have)
	if err == nil {
		if whole, err := e.whole(ctx, have); whole || err != nil {
			return err
		}
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get DaemonSet %s: %w", e.order(t).DaemonSetName(names.Cleanup), err)
	}
	err = e.client.Get(ctx, client.ObjectKey{Name: typ}, t.payload)
	if apierrors.IsNotFound(err) {
		return misconfigured(fmt.Errorf("%s is on %d nodes, and what takes it away is gone with RuntimePayload %s: create it again, or annotate this object with %s=true, which leaves the nodes as they are", typ, left, typ, gardener.AnnotationForce))
	}
	if err != nil {
		return fmt.Errorf("get RuntimePayload %s: %w", typ, err)
	}
	pools, err := e.pools(ctx)
	if err != nil {
		return err
	}
	t.pool = pools[c.Spec.WorkerPool.Name]
	order := e.order(t)
	if err := e.distribution(ctx, t, order); err != nil {
		return err
	}
	_, err = e.daemonSets(ctx, order, names.Cleanup)
	return err
}

// whole says that the settings that a DaemonSet mounts are there. If it is about to go,
// or they are, the error is going.Err.
func (e *onNodes) whole(ctx context.Context, ds *appsv1.DaemonSet) (bool, error) {
	if err := going.Of(ds); err != nil {
		return false, err
	}
	for i := range ds.Spec.Template.Spec.Volumes {
		m := ds.Spec.Template.Spec.Volumes[i].ConfigMap
		if m == nil {
			continue
		}
		have := &corev1.ConfigMap{}
		err := e.client.Get(ctx, client.ObjectKey{Namespace: ds.Namespace, Name: m.Name}, have)
		if err == nil {
			err = going.Of(have)
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("get ConfigMap %s/%s: %w", ds.Namespace, m.Name, err)
		}
	}
	return true, nil
}

// waiting says what a removal waits for.
func (e *onNodes) waiting(ctx context.Context, c *gardener.ContainerRuntime, typ string, left []corev1.Node) (outcome, error) {
	o := outcome{progress: 50, says: fmt.Sprintf("%s is still on %d nodes", typ, len(left))}
	pods, err := e.pods(ctx, c, typ, names.Cleanup)
	if err != nil {
		return o, err
	}
	trouble, err := e.wrong(ctx, &install.Order{Runtime: c, Type: typ}, names.Cleanup, pods)
	if err != nil {
		return o, err
	}
	if len(trouble) > 0 {
		return o, problem{e.sum(trouble, o.says), gardener.CodeCleanup}
	}
	return o, nil
}

// migrate leaves everything, as nodes stay in their cluster.
func (e *onNodes) migrate(context.Context, *gardener.ContainerRuntime, string) (outcome, error) {
	return outcome{done: true, says: leaves}, nil
}

// forget does not wait for nodes, but for their labels, which only this operator has
// to write.
func (e *onNodes) forget(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error) {
	others, err := e.others(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if o, inherited := inherited(others, c); inherited {
		return o, nil
	}
	left, err := e.left(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if len(left) > 0 {
		return outcome{progress: 50, says: fmt.Sprintf("the labels of %d nodes are taken off", len(left))}, nil
	}
	if len(others) == 0 {
		if err := e.classes.Remove(ctx, typ); err != nil {
			return outcome{}, err
		}
	}
	return outcome{done: true, says: "nothing of it is in the cluster any more; what is on the nodes was left there"}, nil
}
