package nodes

import (
	"context"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/placed"
)

// AddTo has a manager run the controller.
func (r *Reconciler) AddTo(m manager.Manager) error {
	return builder.ControllerManagedBy(m).Named("nodes").
		For(&v1alpha1.WorkerPool{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, checked))).
		Watches(&gardener.ContainerRuntime{}, handler.EnqueueRequestsFromMapFunc(ofRuntime)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(ofPod), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(Telling())).
		// One at a time: what a node is in must not be decided twice at once.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: Retries()}).
		Complete(r)
}

// Retries is how soon what failed is tried again: at once, and after a minute at most.
// Without a bound of its own a controller waits for a quarter of an hour by the time an
// API server comes back from one, and nobody tells it that it has.
func Retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute)
}

// checked is that a pool was found to be right, or wrong.
var checked = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*v1alpha1.WorkerPool)
	now, is := e.ObjectNew.(*v1alpha1.WorkerPool)
	return ok && is && valid(old) != valid(now)
}}

// Telling leaves out what kubelets write to their nodes for other reasons.
func Telling() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok := e.ObjectOld.(*corev1.Node)
		now, is := e.ObjectNew.(*corev1.Node)
		return !ok || !is || !maps.Equal(old.Labels, now.Labels) || Alive(old) != Alive(now) ||
			old.Status.NodeInfo.KubeletVersion != now.Status.NodeInfo.KubeletVersion || old.Status.NodeInfo.OSImage != now.Status.NodeInfo.OSImage || !equality.Semantic.DeepEqual(old.Spec.Taints, now.Spec.Taints)
	}}
}

func named(name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

func ofRuntime(_ context.Context, o client.Object) []reconcile.Request {
	return named(placed.As(o.(*gardener.ContainerRuntime)).Spec.WorkerPool.Name)
}

// ofPod is the pool of a pod, or of a DaemonSet.
func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	return named(o.GetLabels()[names.Pool])
}

// ofNode is every pool that a node may concern.
func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	set := map[string]bool{o.GetLabels()[gardener.LabelPool]: true}
	for key, value := range o.GetLabels() {
		if strings.HasPrefix(key, names.Phase) {
			_, pool := names.ReadPhase(value)
			set[pool] = true
		}
	}
	n, _ := o.(*corev1.Node)
	var pools v1alpha1.WorkerPoolList
	if r.Client.List(ctx, &pools) == nil { // a cache answers
		for i := range pools.Items {
			set[pools.Items[i].Name] = set[pools.Items[i].Name] || chooser(&pools.Items[i])(n)
		}
	}
	var runtimes gardener.ContainerRuntimeList
	if r.Client.List(ctx, &runtimes, client.InNamespace(r.Namespace)) == nil {
		for i := range runtimes.Items {
			set[placed.As(&runtimes.Items[i]).Spec.WorkerPool.Name] = true
		}
	}
	var out []reconcile.Request
	for name, yes := range set {
		if yes {
			out = append(out, named(name)...)
		}
	}
	return out
}
