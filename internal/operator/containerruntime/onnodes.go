package containerruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
	"fairlead.run/internal/operator/install"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
)

var providerConfig = field.NewPath("spec", "providerConfig")

// onNodes installs by pods on the nodes of this cluster.
type onNodes struct {
	client  client.Client
	classes *classes.Keeper
	account string // service account of the pods
}

// errTaken says that the owner of a DaemonSet is another object.
var errTaken = errors.New("is of another object, which is about to go or somebody else's")

// OnNodes has a reconciler install by pods on the nodes of this cluster.
func OnNodes(r *Reconciler, keeper *classes.Keeper, account string) *Reconciler {
	r.engine = &onNodes{client: r.Client, classes: keeper, account: account}
	return r
}

// apply makes the DaemonSets and classes, and counts the nodes.
func (e *onNodes) apply(ctx context.Context, t *task) (outcome, error) {
	order := &install.Order{
		Runtime: t.object, Type: t.about.Type, Payload: t.payload, Settings: t.settings.Install,
		CRI: v1alpha1.CRIContainerd, Account: e.account,
	}
	if t.pool != nil {
		order.CRI, order.Restart, order.MaxUnavailable = t.pool.Spec.CRI.Name, t.pool.Spec.Restart, t.pool.Spec.MaxUnavailable
	}
	members, err := e.members(ctx, t.object)
	if err != nil {
		return outcome{}, err
	}
	carriers, err := e.carriers(ctx, t.object, t.about.Type)
	if err != nil {
		return outcome{}, err
	}
	if order.Distribution, err = install.Distribution(order.CRI, append(carriers, members...)); err != nil {
		return outcome{}, misconfigured(err)
	}
	settings, err := order.SettingsMap()
	if err != nil {
		return outcome{}, err
	}
	if err := e.create(ctx, settings); err != nil {
		return outcome{}, err
	}
	for _, work := range []names.PhaseOf{names.Install, names.Cleanup} {
		set, err := order.DaemonSet(work, settings.Name)
		if err != nil {
			return outcome{}, err
		}
		err = e.daemonSet(ctx, set)
		if errors.Is(err, errTaken) {
			return outcome{progress: 5, says: err.Error()}, nil
		}
		if err != nil {
			return outcome{}, err
		}
	}
	keep := map[string]bool{}
	for _, c := range t.classes {
		keep[c.Name] = true
		err := e.classes.Ensure(ctx, classes.Wanted(t.about.Type, c))
		if errors.Is(err, classes.ErrForeign) {
			return outcome{}, misconfigured(err)
		}
		if errors.Is(err, classes.ErrInUse) {
			return outcome{}, problem{err, gardener.CodeRetryable}
		}
		if err != nil {
			return outcome{}, err
		}
	}
	return e.count(ctx, t)
}

// create makes an object that never changes.
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
	if owner := metav1.GetControllerOf(have); owner == nil || owner.UID != want.OwnerReferences[0].UID {
		return fmt.Errorf("DaemonSet %s/%s %w; delete it if it stays", have.Namespace, have.Name, errTaken)
	}
	if equality.Semantic.DeepDerivative(want.Spec, have.Spec) && equality.Semantic.DeepDerivative(want.Labels, have.Labels) {
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
func (e *onNodes) count(ctx context.Context, t *task) (outcome, error) {
	members, err := e.members(ctx, t.object)
	if err != nil {
		return outcome{}, err
	}
	all, ready := len(members), 0
	for i := range members {
		if members[i].Labels[names.Ready+t.about.Type] == "true" {
			ready++
		}
	}
	trouble, err := e.trouble(ctx, t.object, t.about.Type, names.Install)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{done: ready == all && len(trouble) == 0, says: fmt.Sprintf("%s %s was verified on %d of %d nodes", t.about.Type, t.payload.Spec.Manifest.Version, ready, all)}
	o.progress = 10
	if all > 0 {
		o.progress += int32(85 * ready / all)
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "fairlead.run/v1alpha1", "kind": "RuntimeProgress", "version": t.payload.Spec.Manifest.Version, "nodes": all, "readyNodes": ready})
	if err != nil {
		return outcome{}, fmt.Errorf("write the status of a provider: %w", err)
	}
	o.status = &runtime.RawExtension{Raw: text}
	o.condition = &gardener.Condition{Type: "NodesReady", Status: "False", Reason: "Installing", Message: o.says}
	if o.done {
		o.condition.Status, o.condition.Reason = "True", "Verified"
	}
	if len(trouble) == 0 {
		return o, nil
	}
	o.condition.Reason = "InstallFailed"
	return o, e.sum(trouble, o.says)
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
	return list.Items, nil
}

// failure is what an installer said of its last attempt on a node.
type failure struct {
	node, says string
	permanent  bool
}

// trouble is what is wrong on nodes.
func (e *onNodes) trouble(ctx context.Context, c *gardener.ContainerRuntime, typ string, work names.PhaseOf) ([]failure, error) {
	var pods corev1.PodList
	fits := client.MatchingLabels{names.Type: typ, names.Pool: c.Spec.WorkerPool.Name, names.Work: string(work)}
	if err := e.client.List(ctx, &pods, client.InNamespace(c.Namespace), fits); err != nil {
		return nil, fmt.Errorf("list the installer's pods: %w", err)
	}
	var out []failure
	for i := range pods.Items {
		p := &pods.Items[i]
		if _, r := nodes.Read(p); r != nil && r.Reason != "" {
			out = append(out, failure{p.Spec.NodeName, fmt.Sprintf("%s: %s: %s", p.Spec.NodeName, r.Reason, r.Message), r.Reason.Permanent()})
		}
	}
	slices.SortFunc(out, func(a, b failure) int {
		if a.node < b.node {
			return -1
		}
		return 1
	})
	return out, nil
}

// sum is one error of many. If all of them are such that trying again does not help,
// so is it.
func (e *onNodes) sum(all []failure, says string) error {
	var texts []string
	code := gardener.CodeConfiguration
	for _, f := range all {
		texts = append(texts, f.says)
		if !f.permanent {
			code = gardener.CodeRetryable
		}
	}
	return problem{fmt.Errorf("%s; it failed on %d: %s", says, len(all), classes.Some(texts)), code}
}

// remove waits until nobody uses the runtime and it is off all nodes, then takes away
// the classes, if the object is the last of its type.
func (e *onNodes) remove(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error) {
	if twin, err := e.twin(ctx, c, typ); err != nil || twin != "" {
		return outcome{done: true, says: "what is on the nodes is that of ContainerRuntime " + twin}, err
	}
	last, err := e.last(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if last {
		if err := e.unused(ctx, typ); err != nil {
			return outcome{}, err
		}
	}
	left, err := e.carriers(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if len(left) > 0 {
		return e.waiting(ctx, c, typ, left)
	}
	if last {
		if err := e.classes.Remove(ctx, typ, nil); err != nil {
			return outcome{}, err
		}
	}
	return outcome{done: true, says: typ + " is off all nodes of the pool"}, nil
}

// twin is another object that asks for the type on the same pool: what is on the nodes
// is its, from now on if it was not before.
func (e *onNodes) twin(ctx context.Context, c *gardener.ContainerRuntime, typ string) (string, error) {
	var all gardener.ContainerRuntimeList
	if err := e.client.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return "", fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	for i := range all.Items {
		o := &all.Items[i]
		if o.UID != c.UID && o.DeletionTimestamp == nil && o.Spec.WorkerPool.Name == c.Spec.WorkerPool.Name && (o.Spec.Type == c.Spec.Type || o.Spec.Type == typ) {
			return o.Name, nil
		}
	}
	return "", nil
}

// last says that no other object asks for the type.
func (e *onNodes) last(ctx context.Context, c *gardener.ContainerRuntime, typ string) (bool, error) {
	var all gardener.ContainerRuntimeList
	if err := e.client.List(ctx, &all); err != nil {
		return false, fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	of, err := e.classes.List(ctx, typ)
	if err != nil {
		return false, err
	}
	return len(of) > 0 && !slices.ContainsFunc(all.Items, func(o gardener.ContainerRuntime) bool {
		return o.UID != c.UID && o.DeletionTimestamp == nil && (o.Spec.Type == c.Spec.Type || o.Spec.Type == typ)
	}), nil
}

// unused refuses while pods have a class of the type.
func (e *onNodes) unused(ctx context.Context, typ string) error {
	all, err := e.classes.List(ctx, typ)
	if err != nil {
		return err
	}
	var of []string
	for i := range all {
		of = append(of, all[i].Name)
	}
	users, err := e.classes.Users(ctx, of...)
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
func (e *onNodes) carriers(ctx context.Context, c *gardener.ContainerRuntime, typ string) ([]corev1.Node, error) {
	var out []corev1.Node
	for _, phase := range []names.PhaseOf{names.Install, names.Cleanup} {
		var list corev1.NodeList
		if err := e.client.List(ctx, &list, client.MatchingLabels{names.Phase + typ: phase.Value(c.Spec.WorkerPool.Name)}); err != nil {
			return nil, fmt.Errorf("list the nodes with %s: %w", typ, err)
		}
		out = append(out, list.Items...)
	}
	return out, nil
}

// waiting says what a removal waits for.
func (e *onNodes) waiting(ctx context.Context, c *gardener.ContainerRuntime, typ string, left []corev1.Node) (outcome, error) {
	o := outcome{progress: 50, says: fmt.Sprintf("%s is still on %d nodes", typ, len(left))}
	trouble, err := e.trouble(ctx, c, typ, names.Cleanup)
	if err != nil {
		return o, err
	}
	if len(trouble) > 0 {
		return o, problem{e.sum(trouble, o.says), gardener.CodeCleanup}
	}
	return o, nil
}

// forget does not wait for nodes, but for their labels, which only this operator has
// to write.
func (e *onNodes) forget(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error) {
	if twin, err := e.twin(ctx, c, typ); err != nil || twin != "" {
		return outcome{done: true, says: "what is on the nodes is that of ContainerRuntime " + twin}, err
	}
	left, err := e.carriers(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if len(left) > 0 {
		return outcome{progress: 50, says: fmt.Sprintf("the labels of %d nodes are taken off", len(left))}, nil
	}
	last, err := e.last(ctx, c, typ)
	if err != nil {
		return outcome{}, err
	}
	if last {
		if err := e.classes.Remove(ctx, typ, nil); err != nil {
			return outcome{}, err
		}
	}
	return outcome{done: true, says: "nothing of it is in the cluster any more; what is on the nodes was left there"}, nil
}
