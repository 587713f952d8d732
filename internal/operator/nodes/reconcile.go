package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/plugin"
)

// Reconciler brings the nodes of a pool to where they should be. A request's name is
// that of the pool.
type Reconciler struct {
	Client    client.Client
	Live      client.Reader // of the API server itself
	Namespace string        // of ContainerRuntimes and the installer's pods
	Plugins   plugin.Set
	Classes   *classes.Keeper
}

// Reconcile looks at all nodes that the pool concerns.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pool, most, err := r.pool(ctx, request.Name)
	if err != nil || pool == nil {
		return reconcile.Result{}, err
	}
	nodes, err := r.concerned(ctx, r.Client, pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return pool.Has(n) && pool.progress(n) == idle }) {
		// Somebody may begin, and the cache may not have heard of who began last.
		if nodes, err = r.concerned(ctx, r.Live, pool); err != nil {
			return reconcile.Result{}, err
		}
	}
	members := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !pool.Has(n) })
	admitted := pool.Pace(members, Most(most, len(members)))
	var again time.Duration
	for _, n := range nodes {
		err := r.bring(ctx, pool, n, admitted[n.Name])
		if apierrors.IsConflict(err) {
			again = time.Second // somebody else was faster, and the cache will have it
			continue
		}
		if err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// bring changes a node if it has to be another one.
func (r *Reconciler) bring(ctx context.Context, p *Pool, n *corev1.Node, admit bool) error {
	want, err := p.Decide(n, admit)
	if err != nil || want == n {
		return err
	}
	err = r.Client.Patch(ctx, want, client.MergeFromWithOptions(n, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("patch node %s: %w", n.Name, err)
	}
	return nil
}

func (r *Reconciler) concerned(ctx context.Context, from client.Reader, p *Pool) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var out []*corev1.Node
	for i := range list.Items {
		if n := &list.Items[i]; n.DeletionTimestamp == nil && p.Concerns(n) {
			out = append(out, n)
		}
	}
	return out, nil
}

// pool gathers what decides about nodes; nil if there is no such pool.
func (r *Reconciler) pool(ctx context.Context, name string) (*Pool, *intstr.IntOrString, error) {
	var runtimes gardener.ContainerRuntimeList
	if err := r.Client.List(ctx, &runtimes, client.InNamespace(r.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	runtimes.Items = slices.DeleteFunc(runtimes.Items, func(c gardener.ContainerRuntime) bool { return c.Spec.WorkerPool.Name != name })
	p := &Pool{Name: name, Busy: r.busy(ctx)}
	var most *intstr.IntOrString
	owner := &v1alpha1.WorkerPool{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, owner)
	switch {
	case err == nil:
		most = owner.Spec.MaxUnavailable
		p.Claims, p.CRI, p.Taint = true, string(owner.Spec.CRI.Name), owner.Spec.StartupTaint
		p.Chooses = chooser(owner)
	case !apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("get WorkerPool %s: %w", name, err)
	case len(runtimes.Items) == 0:
		return nil, nil, nil
	default:
		selector, err := metav1.LabelSelectorAsSelector(&runtimes.Items[0].Spec.WorkerPool.Selector)
		if err != nil || selector.Empty() {
			return nil, nil, nil // its own controller says what is wrong
		}
		p.Chooses = func(n *corev1.Node) bool { return selector.Matches(labels.Set(n.Labels)) }
	}
	if p.Others, err = r.others(ctx, name); err != nil {
		return nil, nil, err
	}
	return p, most, r.runtimes(ctx, p, runtimes.Items)
}

// chooser is what a pool selects. One that is being deleted keeps its nodes as long as
// its runtimes are there, and selects none afterwards.
func chooser(p *v1alpha1.WorkerPool) func(*corev1.Node) bool {
	selector := labels.SelectorFromSet(p.Spec.NodeSelector)
	if selector.Empty() || p.DeletionTimestamp != nil {
		return func(n *corev1.Node) bool {
			return p.DeletionTimestamp != nil && n.Labels[gardener.LabelPool] == p.Name && selector.Matches(labels.Set(n.Labels)) && carries(n, p.Name)
		}
	}
	return func(n *corev1.Node) bool { return selector.Matches(labels.Set(n.Labels)) }
}

// carries says that something of a pool's runtimes is on a node.
func carries(n *corev1.Node, pool string) bool {
	for key, value := range n.Labels {
		if _, of := names.ReadPhase(value); strings.HasPrefix(key, names.Phase) && of == pool {
			return true
		}
	}
	return false
}

func (r *Reconciler) others(ctx context.Context, name string) ([]string, error) {
	var all v1alpha1.WorkerPoolList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list WorkerPools: %w", err)
	}
	var out []string
	for i := range all.Items {
		if all.Items[i].Name != name {
			out = append(out, all.Items[i].Name)
		}
	}
	return out, nil
}

// runtimes adds those of a pool, with what the installer's pods say. Of two that ask
// for the same type the older one counts.
func (r *Reconciler) runtimes(ctx context.Context, p *Pool, all []gardener.ContainerRuntime) error {
	slices.SortFunc(all, Older)
	seen := map[string]bool{}
	for i := range all {
		c := &all[i]
		one := r.Plugins.Lookup(c.Spec.Type)
		if one == nil || seen[one.Describe().Type] {
			continue
		}
		typ := one.Describe().Type
		if !slices.Contains(c.Finalizers, gardener.Finalizer) {
			continue // it was not accepted yet, or is somebody else's by now
		}
		seen[typ] = true
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.InNamespace(r.Namespace), client.MatchingLabels{names.Type: typ, names.Pool: p.Name}); err != nil {
			return fmt.Errorf("list the installer's pods of %s on pool %s: %w", typ, p.Name, err)
		}
		ending := c.DeletionTimestamp != nil
		rt := Runtime{Type: typ, Ending: ending, Forced: ending && c.Annotations[gardener.AnnotationForce] == "true", Signs: map[string]Sign{}, Gone: map[string]Sign{}}
		if err := r.signs(ctx, &rt, pods.Items); err != nil {
			return err
		}
		p.Runtimes = append(p.Runtimes, rt)
	}
	return nil
}

// signs reads pods. One that is older than its node is of a node that had the name
// before.
func (r *Reconciler) signs(ctx context.Context, rt *Runtime, pods []corev1.Pod) error {
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" {
			continue
		}
		n := &corev1.Node{}
		err := r.Client.Get(ctx, types.NamespacedName{Name: p.Spec.NodeName}, n)
		if apierrors.IsNotFound(err) || err == nil && p.CreationTimestamp.Before(&n.CreationTimestamp) {
			continue
		}
		if err != nil {
			return fmt.Errorf("get node %s: %w", p.Spec.NodeName, err)
		}
		into := rt.Signs
		if p.Labels[names.Work] == string(names.Cleanup) {
			into = rt.Gone
		}
		if sign, _ := Read(p); sign != Unknown {
			into[p.Spec.NodeName] = sign
		}
	}
	return nil
}

// busy asks the API server which pods are on a node.
func (r *Reconciler) busy(ctx context.Context) func(node, typ string) (bool, error) {
	return func(node, typ string) (bool, error) {
		all, err := r.Classes.List(ctx, typ)
		if err != nil {
			return false, err
		}
		var of []string
		for i := range all {
			of = append(of, all[i].Name)
		}
		users, err := r.Classes.UsersOn(ctx, node, of)
		return len(users) > 0, err
	}
}

// Older puts the first of two ContainerRuntimes first.
func Older(a, b gardener.ContainerRuntime) int {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}
	return strings.Compare(a.Name, b.Name)
}
