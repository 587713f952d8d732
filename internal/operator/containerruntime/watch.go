package containerruntime

import (
	"context"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/placed"
)

// ordering leaves out what controllers write into statuses.
var ordering = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return true }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
})

// relabelled leaves out what of nodes is not about runtimes.
var relabelled = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}}

// gone leaves out all but that something was taken away.
var gone = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// AddTo has a manager run the controller of the type.
func (r *Reconciler) AddTo(m manager.Manager) error {
	typ := r.Plugin.Describe().Type
	b := builder.ControllerManagedBy(m).Named("containerruntime-"+typ).
		WithOptions(controller.Options{RateLimiter: nodes.Retries()}).
		For(&gardener.ContainerRuntime{}, builder.WithPredicates(ordering)).
		Watches(&gardener.ContainerRuntime{}, handler.EnqueueRequestsFromMapFunc(r.others), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.RuntimePayload{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	if e, ok := r.engine.(*onNodes); ok {
		b = b.Owns(&appsv1.DaemonSet{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Owns(&corev1.ConfigMap{}, builder.WithPredicates(gone)).
			Watches(&v1alpha1.WorkerPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofLabels)).
			Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(relabelled)).
			Watches(e.classes.Object(), handler.EnqueueRequestsFromMapFunc(r.ofClass))
	} else {
		b = r.watchGardener(b)
	}
	return b.Complete(r)
}

// those are the objects of the type that fit.
func (r *Reconciler) those(ctx context.Context, fits func(*gardener.ContainerRuntime) bool) []reconcile.Request {
	var list gardener.ContainerRuntimeList
	if r.Client.List(ctx, &list) != nil { // a cache answers
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		c := placed.As(&list.Items[i])
		if r.Plugins.Canonical(c.Spec.Type) == r.Plugin.Describe().Type && fits(c) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}})
		}
	}
	return out
}

func (r *Reconciler) all(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != r.Plugin.Describe().Type {
		return nil
	}
	return r.those(ctx, func(*gardener.ContainerRuntime) bool { return true })
}

// others are those of the type beside one: there is one class for all of them.
func (r *Reconciler) others(ctx context.Context, o client.Object) []reconcile.Request {
	one, ok := o.(*gardener.ContainerRuntime)
	if !ok || r.Plugins.Canonical(placed.As(one).Spec.Type) != r.Plugin.Describe().Type {
		return nil
	}
	return r.those(ctx, func(c *gardener.ContainerRuntime) bool {
		return c.Namespace == o.GetNamespace() && c.Name != o.GetName()
	})
}

func (r *Reconciler) ofPool(ctx context.Context, o client.Object) []reconcile.Request {
	return r.those(ctx, func(c *gardener.ContainerRuntime) bool { return c.Spec.WorkerPool.Name == o.GetName() })
}

func (r *Reconciler) ofLabels(ctx context.Context, o client.Object) []reconcile.Request {
	l := o.GetLabels()
	if l[names.Type] != r.Plugin.Describe().Type {
		return nil
	}
	return r.those(ctx, func(c *gardener.ContainerRuntime) bool { return c.Spec.WorkerPool.Name == l[names.Pool] })
}

// ofNode is the objects of the pools that a node is in, or carries something of.
func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	pools := map[string]bool{o.GetLabels()[gardener.LabelPool]: true}
	for key, value := range o.GetLabels() {
		if strings.HasPrefix(key, names.Phase) {
			_, pool := names.ReadPhase(value)
			pools[pool] = true
		}
	}
	return r.those(ctx, func(c *gardener.ContainerRuntime) bool {
		return pools[c.Spec.WorkerPool.Name] || c.Spec.WorkerPool.Selector.MatchLabels[gardener.LabelPool] == ""
	})
}

// ofClass is all objects of the type if a class is of it: by its label, by a name that
// the type needs, or by its handler, whoever has made it.
func (r *Reconciler) ofClass(ctx context.Context, o client.Object) []reconcile.Request {
	d := r.Plugin.Describe()
	ours := o.GetLabels()[names.Type] == d.Type || o.GetName() == d.Type
	if e, ok := r.engine.(*onNodes); ok && !ours {
		handlers, err := e.classes.Handlers(ctx, d.Type)
		ours = err != nil || handlers[o.GetName()] || handlers[classes.HandlerOf(o)] // a cache answers
	}
	for _, name := range d.ClassNames {
		ours = ours || o.GetName() == name
	}
	if !ours {
		return nil
	}
	return r.those(ctx, func(*gardener.ContainerRuntime) bool { return true })
}
