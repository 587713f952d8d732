// Package workerpool acts on WorkerPools: it checks them, has a ContainerRuntime for
// each of their types and for no other, and says how far all of them are. It waits
// for them as a gardenlet does for those of a shoot.
package workerpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/validate"
)

// again is when to look once more at what nobody tells of.
const again = 30 * time.Second

// errForeign says that a name is taken.
var errForeign = errors.New("was made by somebody else, or for another pool")

// Reconciler acts on WorkerPools.
type Reconciler struct {
	Client    client.Client
	Live      client.Reader // of the API server itself
	Namespace string        // of the ContainerRuntimes
	Plugins   plugin.Set
	Passes    *nodes.Passes
	Now       func() time.Time
}

// Reconcile brings the ContainerRuntimes of a pool to what it asks for.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p := &v1alpha1.WorkerPool{}
	if err := r.Client.Get(ctx, request.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err := r.bring(ctx, p)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil // the cache will have it
	case errors.Is(err, errForeign):
		return reconcile.Result{RequeueAfter: again}, nil // nobody tells of what is not the pool's
	}
	return reconcile.Result{}, err
}

func (r *Reconciler) bring(ctx context.Context, p *v1alpha1.WorkerPool) error {
	have, err := r.runtimes(ctx, r.Client, p.Name)
	if err != nil {
		return err
	}
	if p.DeletionTimestamp != nil {
		return r.end(ctx, p, have)
	}
	if controllerutil.AddFinalizer(p, names.PoolFinalizer) {
		was := p.DeepCopy()
		controllerutil.RemoveFinalizer(was, names.PoolFinalizer)
		if err := r.Client.Patch(ctx, p, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("take WorkerPool %s: %w", p.Name, err)
		}
	}
	known, err := r.known(ctx, p)
	if err != nil {
		return err
	}
	result := known.Pool(p)
	if moved := r.moved(p, have); moved != nil {
		result.Faults = append(result.Faults, moved)
	}
	if fault := result.Err(); fault != nil {
		// What is there stays as it is: a mistake in a pool must take nothing away.
		return r.write(ctx, p, have, verdict{fault: fault})
	}
	now, err := r.sync(ctx, p, have)
	if errors.Is(err, errForeign) {
		return errors.Join(r.write(ctx, p, have, verdict{fault: err}), err)
	}
	if err != nil {
		return err
	}
	return r.write(ctx, p, now, verdict{warnings: result.Warnings})
}

// verdict is what is to be said of a pool: why it cannot be acted on, or what somebody
// should look at.
type verdict struct {
	fault    error
	warnings []string
	others   others
}

// others are the nodes of a pool that are not what it says of them.
type others struct {
	architectures, images, versions []string
}

// moved says whether the pool wants its programs elsewhere than its nodes have them.
func (r *Reconciler) moved(p *v1alpha1.WorkerPool, have []gardener.ContainerRuntime) *field.Error {
	for i := range have {
		wanted := slices.ContainsFunc(p.Spec.CRI.ContainerRuntimes, func(w v1alpha1.PoolRuntime) bool { return r.Plugins.Canonical(w.Type) == have[i].Spec.Type })
		if moved := validate.Moved(p, placed.As(&have[i]).Spec.BinaryPath); moved != nil && wanted && have[i].DeletionTimestamp == nil {
			return moved
		}
	}
	return nil
}

// known gathers what validation asks for.
func (r *Reconciler) known(ctx context.Context, p *v1alpha1.WorkerPool) (validate.Known, error) {
	var pools v1alpha1.WorkerPoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return validate.Known{}, fmt.Errorf("list WorkerPools: %w", err)
	}
	slices.SortFunc(pools.Items, func(a, b v1alpha1.WorkerPool) int { return strings.Compare(a.Name, b.Name) })
	var releases v1alpha1.RuntimePayloadList
	if err := r.Client.List(ctx, &releases); err != nil {
		return validate.Known{}, fmt.Errorf("list RuntimePayloads: %w", err)
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return validate.Known{}, fmt.Errorf("list nodes: %w", err)
	}
	kubelet, processors := "", validate.Processors{}
	for i := range nodes.Items {
		kubelet = validate.Older(kubelet, p, &nodes.Items[i])
		processors.Look(p, &nodes.Items[i])
	}
	return validate.Known{
		Plugins: r.Plugins, Pools: before(pools.Items, p), Kubelet: kubelet, Virtual: processors.Virtual(),
		Payload: func(typ string) *v1alpha1.RuntimePayload {
			at := slices.IndexFunc(releases.Items, func(p v1alpha1.RuntimePayload) bool { return p.Name == typ })
			if at < 0 {
				return nil
			}
			return &releases.Items[at]
		},
	}, nil
}

// before are the pools that are older than p: of two that choose the same nodes, the
// younger one is at fault.
func before(all []v1alpha1.WorkerPool, p *v1alpha1.WorkerPool) []v1alpha1.WorkerPool {
	return slices.DeleteFunc(all, func(o v1alpha1.WorkerPool) bool {
		if o.CreationTimestamp.Equal(&p.CreationTimestamp) {
			return o.Name >= p.Name
		}
		return p.CreationTimestamp.Before(&o.CreationTimestamp)
	})
}

// runtimes are the ContainerRuntimes that were made for a pool.
func (r *Reconciler) runtimes(ctx context.Context, from client.Reader, pool string) ([]gardener.ContainerRuntime, error) {
	var list gardener.ContainerRuntimeList
	err := from.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingLabels{names.ManagedBy: names.Manager, names.Pool: pool})
	if err != nil {
		return nil, fmt.Errorf("list the ContainerRuntimes of pool %s: %w", pool, err)
	}
	// A cache lists in any order, and the status has them in this one.
	slices.SortFunc(list.Items, func(a, b gardener.ContainerRuntime) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// sync makes, changes and deletes them. It returns them as they are then, which a cache
// learns later: by that a pool would be ready as it was before.
func (r *Reconciler) sync(ctx context.Context, p *v1alpha1.WorkerPool, have []gardener.ContainerRuntime) ([]gardener.ContainerRuntime, error) {
	wanted := map[string]bool{}
	for i := range p.Spec.CRI.ContainerRuntimes {
		want := r.wanted(p, p.Spec.CRI.ContainerRuntimes[i])
		wanted[want.Name] = true
		at := slices.IndexFunc(have, func(c gardener.ContainerRuntime) bool { return c.Name == want.Name })
		if at >= 0 {
			if err := r.change(ctx, &have[at], want); err != nil {
				return nil, err
			}
			continue
		}
		if err := r.create(ctx, p, want); err != nil {
			return nil, err
		}
		have = append(have, *want)
	}
	for i := range have {
		if !wanted[have[i].Name] {
			if err := r.drop(ctx, &have[i], false); err != nil {
				return nil, err
			}
		}
	}
	return have, nil
}

// create makes one. If the name is taken, it says whether the pool itself has it, of
// which the cache has not heard.
func (r *Reconciler) create(ctx context.Context, p *v1alpha1.WorkerPool, want *gardener.ContainerRuntime) error {
	err := r.Client.Create(ctx, want)
	if err == nil {
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		live, failed := r.runtimes(ctx, r.Live, p.Name)
		if failed != nil {
			return failed
		}
		if !slices.ContainsFunc(live, func(c gardener.ContainerRuntime) bool { return c.Name == want.Name }) {
			return fmt.Errorf("ContainerRuntime %s/%s is there and %w: delete it, or make a pool of another name", want.Namespace, want.Name, errForeign)
		}
	}
	return fmt.Errorf("create ContainerRuntime %s/%s: %w", want.Namespace, want.Name, err)
}

// wanted is the ContainerRuntime of one type.
func (r *Reconciler) wanted(p *v1alpha1.WorkerPool, w v1alpha1.PoolRuntime) *gardener.ContainerRuntime {
	typ := r.Plugins.Canonical(w.Type)
	c := &gardener.ContainerRuntime{}
	c.Name, c.Namespace = typ+"-"+p.Name, r.Namespace
	c.Labels = map[string]string{names.ManagedBy: names.Manager, names.Pool: p.Name, names.Type: typ}
	c.Annotations = map[string]string{
		gardener.AnnotationOperation: gardener.OrderReconcile, gardener.AnnotationTimestamp: r.Now().UTC().Format(time.RFC3339Nano),
	}
	var config *runtime.RawExtension
	if w.ProviderConfig != nil {
		config = w.ProviderConfig.DeepCopy()
	}
	c.Spec = gardener.ContainerRuntimeSpec{
		Type: typ, ProviderConfig: config, BinaryPath: validate.BinaryPath(p.Spec.MachineImage.Name),
		WorkerPool: gardener.ContainerRuntimeWorkerPool{Name: p.Name, Selector: metav1.LabelSelector{MatchLabels: map[string]string{gardener.LabelPool: p.Name}}},
	}
	return c
}

// change orders a reconciliation of what is another than it should be.
func (r *Reconciler) change(ctx context.Context, have, want *gardener.ContainerRuntime) error {
	if have.DeletionTimestamp != nil || equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return nil // one that is going is made anew when it has gone
	}
	was := have.DeepCopy()
	have.Spec = want.Spec
	if have.Annotations == nil {
		have.Annotations = map[string]string{}
	}
	for key, value := range want.Annotations {
		have.Annotations[key] = value
	}
	if err := r.Client.Patch(ctx, have, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("change ContainerRuntime %s/%s: %w", have.Namespace, have.Name, err)
	}
	return nil
}

// drop deletes one, with the confirmation that Gardener's webhooks ask for.
func (r *Reconciler) drop(ctx context.Context, c *gardener.ContainerRuntime, force bool) error {
	was := c.DeepCopy()
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[gardener.AnnotationConfirm] = "true"
	if force {
		c.Annotations[gardener.AnnotationForce] = "true"
	}
	if !equality.Semantic.DeepEqual(was.Annotations, c.Annotations) {
		// One of the name may be another by now, and somebody else's.
		err := r.Client.Patch(ctx, c, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("confirm the deletion of ContainerRuntime %s/%s: %w", c.Namespace, c.Name, err)
		}
	}
	if c.DeletionTimestamp != nil {
		return nil
	}
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID})); err != nil {
		return fmt.Errorf("delete ContainerRuntime %s/%s: %w", c.Namespace, c.Name, err)
	}
	c.DeletionTimestamp = &metav1.Time{Time: r.Now()}
	return nil
}

// end has everything taken away, and lets go of the pool when it is.
func (r *Reconciler) end(ctx context.Context, p *v1alpha1.WorkerPool, have []gardener.ContainerRuntime) error {
	if !controllerutil.ContainsFinalizer(p, names.PoolFinalizer) {
		return nil
	}
	members, err := members(ctx, r.Client, p.Name)
	if err != nil {
		return err
	}
	if len(have)+members == 0 { // as far as the cache has heard
		if have, members, err = r.left(ctx, p.Name); err != nil {
			return err
		}
	}
	force := p.Annotations[gardener.AnnotationForce] == "true"
	for i := range have {
		if err := r.drop(ctx, &have[i], force); err != nil {
			return err
		}
	}
	if len(have)+members > 0 {
		return r.write(ctx, p, have, verdict{})
	}
	was := p.DeepCopy()
	controllerutil.RemoveFinalizer(p, names.PoolFinalizer)
	err = r.Client.Patch(ctx, p, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("release WorkerPool %s: %w", p.Name, err)
	}
	return nil
}

// members is how many nodes are in a pool.
func members(ctx context.Context, from client.Reader, pool string) (int, error) {
	var list corev1.NodeList
	if err := from.List(ctx, &list, client.MatchingLabels{gardener.LabelPool: pool}); err != nil {
		return 0, fmt.Errorf("list the nodes of pool %s: %w", pool, err)
	}
	return len(list.Items), nil
}

// left is what the API server still has of a pool that is being deleted, once nobody is
// about to put a node into it.
func (r *Reconciler) left(ctx context.Context, pool string) ([]gardener.ContainerRuntime, int, error) {
	if err := r.Passes.Wait(ctx, pool); err != nil {
		return nil, 0, err
	}
	have, err := r.runtimes(ctx, r.Live, pool)
	if err != nil {
		return nil, 0, err
	}
	n, err := members(ctx, r.Live, pool)
	return have, n, err
}

// write stores how far the pool is.
func (r *Reconciler) write(ctx context.Context, p *v1alpha1.WorkerPool, have []gardener.ContainerRuntime, found verdict) error {
	was := p.DeepCopy()
	var err error
	if found.others, err = r.count(ctx, p); err != nil {
		return err
	}
	if all := found.others.versions; len(all) > 0 && found.fault == nil {
		found.warnings = append(slices.Clone(found.warnings), fmt.Sprintf("spec.machineImage.version: %d nodes have another version than %s: %s", len(all), p.Spec.MachineImage.Version, classes.Some(all)))
	}
	p.Status.Runtimes = nil
	for i := range have {
		one, err := r.runtime(ctx, p, &have[i])
		if err != nil {
			return err
		}
		p.Status.Runtimes = append(p.Status.Runtimes, one)
	}
	r.judge(p, have, found)
	if equality.Semantic.DeepEqual(was.Status, p.Status) {
		return nil
	}
	err = r.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("write the status of WorkerPool %s: %w", p.Name, err)
	}
	return nil
}

// count looks at the nodes, and says which are not what the pool says.
func (r *Reconciler) count(ctx context.Context, p *v1alpha1.WorkerPool) (out others, err error) {
	var list corev1.NodeList
	if err := r.Client.List(ctx, &list); err != nil {
		return out, fmt.Errorf("list nodes: %w", err)
	}
	of := validate.MachinesOf(p, &payload.RuntimePayload{})
	p.Status.Nodes, p.Status.Contested = 0, nil
	for i := range list.Items {
		n := &list.Items[i]
		switch has := n.Labels[gardener.LabelPool]; {
		case has == p.Name:
			p.Status.Nodes++
			out.add(n, p, of)
		case has != "" && validate.Chooses(p, n):
			p.Status.Contested = append(p.Status.Contested, n.Name)
		}
	}
	slices.Sort(p.Status.Contested) // a cache lists in any order
	p.Status.Contested = p.Status.Contested[:min(len(p.Status.Contested), mostContested)]
	for _, all := range [][]string{out.architectures, out.images, out.versions} {
		slices.Sort(all)
	}
	return out, nil
}

func (o *others) add(n *corev1.Node, p *v1alpha1.WorkerPool, of validate.Machines) {
	switch says, do := of.Misfit(n); {
	case says != "" && do == validate.ForMisfits:
		o.architectures = append(o.architectures, says)
	case says != "":
		o.images = append(o.images, says)
	default:
		if says = validate.OtherVersion(n, p.Spec.MachineImage); says != "" {
			o.versions = append(o.versions, says)
		}
	}
}

// mostContested is what the schema allows.
const mostContested = 10

// runtime is how far one ContainerRuntime is.
func (r *Reconciler) runtime(ctx context.Context, p *v1alpha1.WorkerPool, c *gardener.ContainerRuntime) (v1alpha1.RuntimeStatus, error) {
	s := v1alpha1.RuntimeStatus{Type: c.Spec.Type, State: string(gardener.StatePending), Message: "nobody acts on it yet"}
	if last := c.Status.LastOperation; last != nil {
		s.State, s.Message = string(last.State), last.Description
	}
	var ready corev1.NodeList
	err := r.Client.List(ctx, &ready, client.MatchingLabels{gardener.LabelPool: p.Name, names.Ready + c.Spec.Type: "true"})
	if err != nil {
		return s, fmt.Errorf("list the nodes with %s: %w", c.Spec.Type, err)
	}
	s.ReadyNodes = int32(len(ready.Items))
	return s, nil
}

// judge sets the conditions.
func (r *Reconciler) judge(p *v1alpha1.WorkerPool, have []gardener.ContainerRuntime, found verdict) {
	p.Status.ObservedGeneration = p.Generation
	valid := metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: "Checked", Message: "the pool can be acted on", ObservedGeneration: p.Generation}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation}
	if len(found.warnings) > 0 { // without the webhook nobody else tells them
		valid.Reason, valid.Message = "Warned", "the pool can be acted on; look at this: "+strings.Join(found.warnings, "; ")
	}
	waits := Unready(have)
	switch {
	case found.fault != nil:
		text := found.fault.Error()
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, "Invalid", text
		ready.Reason, ready.Message = string(gardener.CodeConfiguration), "the pool is not acted on before it is mended: "+text
	case p.DeletionTimestamp != nil:
		ready.Reason, ready.Message = "Deleting", "its runtimes are taken away"
		if len(waits) > 0 {
			ready.Message += ": " + strings.Join(waits, "; ")
		}
	case len(found.others.architectures) > 0 && len(have) > 0:
		ready.Reason, ready.Message = "OtherArchitecture", misfit("of another architecture than spec.architecture", found.others.architectures, waits)+"; "+validate.ForMisfits
	case len(found.others.images) > 0 && len(have) > 0:
		ready.Reason, ready.Message = "OtherMachineImage", misfit("of another operating system than spec.machineImage", found.others.images, waits)+"; "+validate.ForOtherImages
	case len(have) < len(p.Spec.CRI.ContainerRuntimes) || len(waits) > 0:
		ready.Reason, ready.Message = "Waiting", strings.Join(waits, "; ")
		if ready.Message == "" {
			ready.Message = "its ContainerRuntimes are being made"
		}
	case len(p.Status.Contested) > 0:
		ready.Reason = "Contested"
		ready.Message = "all runtimes are on its nodes, but it also chooses nodes that are in other pools by their label " + gardener.LabelPool + ": " + classes.Some(p.Status.Contested) + "; tell the pools apart by another label, or take that one off where it is of a pool that is gone"
	case p.Status.Nodes == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, "NoNodes", fmt.Sprintf("it has no nodes; each that it gets has %d runtimes installed", len(have))
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, "Installed", fmt.Sprintf("%d runtimes are on %d nodes", len(have), p.Status.Nodes)
	}
	for _, c := range []metav1.Condition{valid, ready} {
		c.Message = cut(c.Message)
		setCondition(&p.Status.Conditions, c, r.Now())
	}
}

// misfit is what to say of nodes that are not for the pool's runtimes, and of what else is
// waited for.
func misfit(why string, nodes, waits []string) string {
	text := fmt.Sprintf("%d of its nodes are %s, and get no runtimes: %s", len(nodes), why, classes.Some(nodes))
	if len(waits) > 0 {
		text += "; it waits: " + strings.Join(waits, "; ")
	}
	return text
}

// cut keeps messages to what the schema takes.
func cut(s string) string {
	const most = 4096
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func setCondition(all *[]metav1.Condition, c metav1.Condition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	for i := range *all {
		if had := &(*all)[i]; had.Type == c.Type {
			if had.Status == c.Status {
				c.LastTransitionTime = had.LastTransitionTime
			}
			*had = c
			return
		}
	}
	*all = append(*all, c)
}

// Unready says of each ContainerRuntime why it is not done, by the contract that a
// gardenlet waits by.
func Unready(all []gardener.ContainerRuntime) []string {
	var out []string
	for i := range all {
		if err := Done(&all[i]); err != nil {
			out = append(out, all[i].Spec.Type+": "+err.Error())
		}
	}
	slices.Sort(out)
	return out
}

// Done says why an object is not reconciled, or nil.
func Done(c *gardener.ContainerRuntime) error {
	last := c.Status.LastOperation
	asked, err := time.Parse(time.RFC3339Nano, c.Annotations[gardener.AnnotationTimestamp])
	switch {
	case c.DeletionTimestamp != nil:
		if last != nil && last.Type == gardener.OperationDelete {
			return errors.New(last.Description)
		}
		return errors.New("it is being deleted")
	case c.Status.LastError != nil:
		return errors.New(c.Status.LastError.Description)
	case last == nil:
		return errors.New("nobody acts on it yet")
	case c.Annotations[gardener.AnnotationOperation] != "":
		return errors.New("the last order was not taken up yet")
	case last.State == gardener.StateProcessing:
		return errors.New(last.Description) // the generation is said to be observed at its end
	case c.Status.ObservedGeneration != c.Generation:
		return errors.New("what changed last was not taken up yet")
	case last.State != gardener.StateSucceeded:
		return errors.New(last.Description)
	case err == nil && asked.After(last.LastUpdateTime.Time):
		return errors.New("the last order was not carried out yet")
	}
	return nil
}
