package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/install"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/validate"
)

// Reconciler brings the nodes of a pool to where they should be. A request's name is
// that of the pool.
type Reconciler struct {
	Client    client.Client
	Live      client.Reader // of the API server itself
	Namespace string        // of ContainerRuntimes and the installer's pods
	Plugins   plugin.Set
	Classes   *classes.Keeper
	Passes    *Passes
	Now       func() time.Time
}

// Reconcile looks at all nodes that the pool concerns.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	end, err := r.Passes.begin(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer end()
	look, err := r.look(ctx, source{r.Client, 0}, request.Name)
	if err != nil || look == nil {
		return reconcile.Result{}, err
	}
	if look.begins() {
		// The cache may not have heard of who began last. In all other looks at the pool
		// it is enough.
		if look, err = r.look(ctx, source{r.Live, page}, request.Name); err != nil || look == nil {
			return reconcile.Result{}, err
		}
	}
	r.Passes.note(request.Name, look.pace.Passed)
	again := time.Duration(0)
	var failed []error
	for _, n := range look.nodes {
		err := r.bring(ctx, look, n)
		if apierrors.IsConflict(err) {
			again = time.Second // somebody else was faster, and the cache will have it
			continue
		}
		failed = append(failed, err) // one node must not hold up the others
	}
	if err := errors.Join(failed...); err != nil {
		return reconcile.Result{}, err
	}
	if again == 0 && (look.pool.held || look.pool.later) {
		again = whileHeld
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// whileHeld is when to look again at a node whose runtime pods still run on, or that does
// not answer: of other pods than the installer's, and of time, nobody tells.
const whileHeld = 30 * time.Second

// look is what was seen of a pool, and what follows from that.
type look struct {
	pool  *Pool
	nodes []*corev1.Node
	pace  Pace
}

// look reads what decides about a pool; nil if there is no such pool. Nodes, DaemonSets
// and pods come from the source, as they tell who works.
func (r *Reconciler) look(ctx context.Context, from source, name string) (*look, error) {
	pool, most, err := r.pool(ctx, from, name)
	if err != nil || pool == nil {
		return nil, err
	}
	nodes, err := concerned(ctx, from, pool)
	if err != nil {
		return nil, err
	}
	return &look{pool, nodes, pool.admit(nodes, most)}, nil
}

// begins says that work is to begin on a node.
func (l *look) begins() bool {
	return slices.ContainsFunc(l.nodes, func(n *corev1.Node) bool {
		return l.pace.Admitted[n.Name] && l.pool.progress(n) != working || l.pace.Renewed[n.Name] && len(l.pool.outdated(n)) > 0
	})
}

// bring changes a node if it has to be another one, and lets go of the installer's pods
// of a release before if it is the node's turn.
func (r *Reconciler) bring(ctx context.Context, l *look, n *corev1.Node) error {
	if err := r.write(ctx, l, n); err != nil || !l.pace.Renewed[n.Name] {
		return err
	}
	for _, old := range l.pool.outdated(n) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: old.Name}}
		// One of the name may be another by now.
		if err := r.Client.Delete(ctx, p, client.Preconditions{UID: &old.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s/%s of node %s, which has another release: %w", p.Namespace, p.Name, n.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) write(ctx context.Context, l *look, n *corev1.Node) error {
	want, err := l.pool.Decide(n, l.pace.Admitted[n.Name])
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

// page is how many objects an API server is asked for at once.
const page = 500

// source is where objects are read: a cache, or the API server in pages. A cache always
// says that there is more, and has no pages.
type source struct {
	client.Reader
	page int64 // 0 is a cache
}

// each reads a list, page by page.
func each[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, from source, take func(P), options ...client.ListOption,
) error {
	for next := ""; ; {
		list, asked := P(new(L)), slices.Clone(options)
		if from.page > 0 {
			asked = append(asked, client.Limit(from.page), client.Continue(next))
		}
		if err := from.List(ctx, list, asked...); err != nil {
			return err
		}
		take(list)
		if next = list.GetContinue(); next == "" || from.page == 0 {
			return nil
		}
	}
}

func concerned(ctx context.Context, from source, p *Pool) ([]*corev1.Node, error) {
	var out []*corev1.Node
	err := each(ctx, from, func(list *corev1.NodeList) {
		for i := range list.Items {
			if n := &list.Items[i]; n.DeletionTimestamp == nil && p.Concerns(n) {
				out = append(out, n)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return out, nil
}

// pool gathers what decides about nodes; nil if there is no such pool.
func (r *Reconciler) pool(ctx context.Context, from source, name string) (*Pool, *intstr.IntOrString, error) {
	var runtimes gardener.ContainerRuntimeList
	if err := r.Client.List(ctx, &runtimes, client.InNamespace(r.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	runtimes.Items = slices.DeleteFunc(placed.All(runtimes.Items), func(c gardener.ContainerRuntime) bool { return c.Spec.WorkerPool.Name != name })
	p := &Pool{Name: name, Installing: r.installing(ctx), Now: r.Now()}
	p.Busy = r.busy(ctx, &p.held)
	var most *intstr.IntOrString
	owner := &v1alpha1.WorkerPool{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, owner)
	switch {
	case err == nil:
		most = owner.Spec.MaxUnavailable
		p.Claims, p.CRI, p.Taint = true, string(owner.Spec.CRI.Name), owner.Spec.StartupTaint
		p.Chooses, p.Valid = chooser(owner), valid(owner)
		for _, one := range owner.Spec.CRI.ContainerRuntimes {
			p.Types = append(p.Types, r.Plugins.Canonical(one.Type))
		}
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
	if err := r.runtimes(ctx, from, p, runtimes.Items); err != nil {
		return nil, nil, err
	}
	return p, most, r.machines(ctx, p, owner)
}

// valid says that the controller of pools has found nothing wrong with one as it is.
func valid(p *v1alpha1.WorkerPool) bool {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionValid)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == p.Generation
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

// runtimes adds those of a pool, with what the installer's pods say. Of two that ask
// for the same type the older one counts, unless it is being deleted: what is on the
// nodes is the other one's then.
func (r *Reconciler) runtimes(ctx context.Context, from source, p *Pool, all []gardener.ContainerRuntime) error {
	sets, err := r.daemonSets(ctx, from, p.Name)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b gardener.ContainerRuntime) int {
		if goes := a.DeletionTimestamp != nil; goes != (b.DeletionTimestamp != nil) {
			return map[bool]int{true: 1, false: -1}[goes]
		}
		return Older(a, b)
	})
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
		pods, err := r.pods(ctx, from, typ)
		if err != nil {
			return err
		}
		offered, revision := offer(sets, c, typ)
		ending := c.DeletionTimestamp != nil
		rt := Runtime{
			Type: typ, Ending: ending, Forced: ending && c.Annotations[gardener.AnnotationForce] == "true",
			Offered: offered, Refused: c.Status.LastError != nil, Revision: revision,
			Refusals: map[string]bool{}, Signs: map[string]Sign{}, Gone: map[string]Sign{}, Pods: map[string][]Installer{},
			Installers: still(pods, names.Install), Cleaners: still(pods, names.Cleanup),
		}
		of := slices.DeleteFunc(pods, func(o corev1.Pod) bool { return o.Labels[names.Pool] != p.Name })
		if err := r.signs(ctx, &rt, of); err != nil {
			return err
		}
		p.Runtimes = append(p.Runtimes, rt)
	}
	return nil
}

// machines finds out which nodes runtimes are for.
func (r *Reconciler) machines(ctx context.Context, p *Pool, owner *v1alpha1.WorkerPool) error {
	for i := range p.Runtimes {
		rt, release := &p.Runtimes[i], &v1alpha1.RuntimePayload{}
		if err := client.IgnoreNotFound(r.Client.Get(ctx, types.NamespacedName{Name: rt.Type}, release)); err != nil {
			return fmt.Errorf("get RuntimePayload %s: %w", rt.Type, err)
		}
		rt.Machines = validate.MachinesOf(owner, &release.Spec.Manifest)
	}
	return nil
}

// pods are those of the installer for a type, on nodes of all pools.
func (r *Reconciler) pods(ctx context.Context, from source, typ string) (out []corev1.Pod, err error) {
	err = each(ctx, from, func(list *corev1.PodList) { out = append(out, list.Items...) },
		client.InNamespace(r.Namespace), client.MatchingLabels{names.ManagedBy: names.Manager, names.Type: typ})
	if err != nil {
		return nil, fmt.Errorf("list the installer's pods of %s: %w", typ, err)
	}
	return out, nil
}

// daemonSets are those for a pool, by their names.
func (r *Reconciler) daemonSets(ctx context.Context, from source, pool string) (map[string]*appsv1.DaemonSet, error) {
	out := map[string]*appsv1.DaemonSet{}
	err := each(ctx, from, func(list *appsv1.DaemonSetList) {
		for i := range list.Items {
			out[list.Items[i].Name] = &list.Items[i]
		}
	}, client.InNamespace(r.Namespace), client.MatchingLabels{names.ManagedBy: names.Manager, names.Pool: pool})
	if err != nil {
		return nil, fmt.Errorf("list the DaemonSets of pool %s: %w", pool, err)
	}
	return out, nil
}

// offer says whether both DaemonSets of an object are there, and which revision that has
// that installs. Without them a node would be marked for what nobody does, and never be
// let go; one that is being deleted makes no more pods.
func offer(sets map[string]*appsv1.DaemonSet, c *gardener.ContainerRuntime, typ string) (whole bool, revision string) {
	order := install.Order{Runtime: c, Type: typ}
	at := func(work names.PhaseOf) *appsv1.DaemonSet {
		if ds := sets[order.DaemonSetName(work)]; ds != nil && ds.DeletionTimestamp == nil && metav1.IsControlledBy(ds, c) {
			return ds
		}
		return nil
	}
	installs := at(names.Install)
	if installs == nil {
		return false, ""
	}
	return at(names.Cleanup) != nil, installs.Spec.Template.Annotations[names.AnnotationRevision]
}

// still are the nodes on which pods that do some work have not ended, whichever pool
// they are of.
func still(pods []corev1.Pod, work names.PhaseOf) map[string]bool {
	out := map[string]bool{}
	for i := range pods {
		if p := &pods[i]; p.Labels[names.Work] == string(work) && p.Spec.NodeName != "" && !ended(p) {
			out[p.Spec.NodeName] = true
		}
	}
	return out
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// signs reads pods. One that is older than its node is of a node that had the name
// before.
func (r *Reconciler) signs(ctx context.Context, rt *Runtime, pods []corev1.Pod) error {
	// A node may have two for a moment; the younger one counts, once it says something.
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
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
		} else {
			rt.Refusals[p.Spec.NodeName] = refused(p)
			rt.Pods[p.Spec.NodeName] = append(rt.Pods[p.Spec.NodeName], installer(p))
		}
		if sign, _ := Read(p); sign.Known || sign.Done {
			into[p.Spec.NodeName] = sign
		}
	}
	return nil
}

// busy asks the API server which pods are on a node, and notes in held if that keeps a
// runtime there.
func (r *Reconciler) busy(ctx context.Context, held *bool) func(node, typ string) (bool, error) {
	return func(node, typ string) (bool, error) {
		all, err := r.Classes.List(ctx, typ)
		if err != nil {
			return false, err
		}
		of, err := r.Classes.Others(ctx, typ)
		if err != nil {
			return false, err
		}
		for i := range all {
			of = append(of, all[i].Name)
		}
		users, err := r.Classes.UsersOn(ctx, node, of)
		*held = *held || len(users) > 0
		return len(users) > 0, err
	}
}

// installing asks the API server on which nodes pods of the installer are, once for all
// of them: the cache may not have heard of one that has just begun. A node that is asked
// about was marked before, so that no new pod comes to it.
func (r *Reconciler) installing(ctx context.Context) func(node, typ string) (bool, error) {
	on := map[string]map[string]bool{} // nodes, by type
	return func(node, typ string) (bool, error) {
		if on[typ] != nil {
			return on[typ][node], nil
		}
		var pods corev1.PodList
		err := r.Live.List(ctx, &pods, client.InNamespace(r.Namespace), client.MatchingLabels{names.ManagedBy: names.Manager, names.Type: typ, names.Work: string(names.Install)})
		if err != nil {
			return false, fmt.Errorf("list the installer's pods of %s: %w", typ, err)
		}
		on[typ] = map[string]bool{}
		for i := range pods.Items {
			if p := &pods.Items[i]; !ended(p) {
				on[typ][p.Spec.NodeName] = true
			}
		}
		return on[typ][node], nil
	}
}

// Older puts the first of two ContainerRuntimes first.
func Older(a, b gardener.ContainerRuntime) int {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}
	return strings.Compare(a.Name, b.Name)
}
