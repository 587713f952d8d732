package containerruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/validate"
)

// again is when to look once more at what nobody tells of: pods that are to end
// before a runtime may go.
const again = 30 * time.Second

// soon is when to look again at what Gardener takes away, as often as its gardenlets look.
const soon = 5 * time.Second

// seldom is when to look again at what is done in a seed: of what applies the classes
// nobody tells, and somebody may have changed or deleted it.
const seldom = 5 * time.Minute

// Reconciler acts on the ContainerRuntimes of one type.
type Reconciler struct {
	Client  client.Client
	Plugin  plugin.Plugin
	Plugins plugin.Set
	Now     func() time.Time

	engine engine
}

// Reconcile does what an object asks for, as far as that is possible now.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	c := &gardener.ContainerRuntime{}
	if err := r.Client.Get(ctx, request.NamespacedName, c); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if r.Plugins.Canonical(placed.As(c).Spec.Type) != r.Plugin.Describe().Type || !mine(c.Spec.Class) {
		return reconcile.Result{}, nil
	}
	v := Decide(c)
	if v == Nothing {
		return reconcile.Result{}, nil
	}
	as, err := r.begin(ctx, c, v)
	if err != nil {
		return quiet(reconcile.Result{}, err)
	}
	o, err := r.do(ctx, c, v)
	return quiet(r.end(ctx, c, v, ending{o, as, err}))
}

// outrun says that somebody else was faster, of which the cache has not heard: that
// will pass, and is no news for whoever looks at the object.
func outrun(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func quiet(result reconcile.Result, err error) (reconcile.Result, error) {
	if outrun(err) {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

// mine says whether a class of objects is acted on. The others are for what Gardener
// itself runs on.
func mine(class *string) bool { return class == nil || *class == "" || *class == "shoot" }

// begin takes the order off, says that it was heard, and makes sure that the object
// stays until it was carried out.
func (r *Reconciler) begin(ctx context.Context, c *gardener.ContainerRuntime, v Verb) (gardener.OperationType, error) {
	was, as := c.DeepCopy(), v.operation(c)
	fresh := unanswered(c, as, r.Now())
	if c.Annotations[gardener.AnnotationOperation] == gardener.OrderReconcile {
		delete(c.Annotations, gardener.AnnotationOperation)
	}
	if v == Reconcile || v == Restore {
		controllerutil.AddFinalizer(c, gardener.Finalizer)
	}
	if len(was.Finalizers) != len(c.Finalizers) || len(was.Annotations) != len(c.Annotations) {
		if err := r.Client.Patch(ctx, c, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
			return as, fmt.Errorf("take the order of ContainerRuntime %s/%s: %w", c.Namespace, c.Name, err)
		}
	}
	if !fresh {
		return as, nil
	}
	return as, r.write(ctx, c, ending{outcome: outcome{progress: 1, says: "it has begun"}, as: as})
}

// do carries a verb out.
func (r *Reconciler) do(ctx context.Context, c *gardener.ContainerRuntime, v Verb) (outcome, error) {
	typ, was := r.Plugin.Describe().Type, placed.As(c)
	switch v {
	case Delete:
		return r.engine.remove(ctx, was, typ)
	case ForceDelete:
		return r.engine.forget(ctx, was, typ)
	case Migrate:
		return r.engine.migrate(ctx, was, typ)
	case Reconcile, Restore, Nothing:
	}
	t, err := r.task(ctx, c)
	if err != nil {
		return outcome{}, err
	}
	if err := r.remember(ctx, c); err != nil {
		return outcome{}, err
	}
	return r.engine.apply(ctx, t)
}

// remember stores where an object puts something, before it does.
func (r *Reconciler) remember(ctx context.Context, c *gardener.ContainerRuntime) error {
	was := c.DeepCopy()
	news, err := placed.Note(c)
	if err == nil && news {
		err = r.Client.Patch(ctx, c, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	}
	if err != nil {
		return fmt.Errorf("note where ContainerRuntime %s/%s puts something: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// end says how it went, and lets go of what is done.
func (r *Reconciler) end(ctx context.Context, c *gardener.ContainerRuntime, v Verb, o ending) (reconcile.Result, error) {
	failed := o.err
	if outrun(failed) {
		return reconcile.Result{}, failed
	}
	if err := r.write(ctx, c, o); err != nil {
		return reconcile.Result{}, errors.Join(failed, err)
	}
	switch {
	case permanent(failed):
		return reconcile.Result{}, nil // until the object, its payload or its pool is another
	case failed != nil && codesOf(failed) != nil:
		return reconcile.Result{RequeueAfter: again}, nil // it waits for a user
	case failed != nil:
		return reconcile.Result{}, fmt.Errorf("%s ContainerRuntime %s/%s: %w", v, c.Namespace, c.Name, failed)
	case !o.done && o.soon:
		return reconcile.Result{RequeueAfter: soon}, nil
	case !o.done:
		return reconcile.Result{RequeueAfter: again}, nil // nodes and pods are watched, and others not
	}
	if err := r.release(ctx, c, v); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: o.later}, nil
}

// release takes off the finalizer or the order that was carried out.
func (r *Reconciler) release(ctx context.Context, c *gardener.ContainerRuntime, v Verb) error {
	was := c.DeepCopy()
	switch v {
	case Delete, ForceDelete, Migrate:
		controllerutil.RemoveFinalizer(c, gardener.Finalizer)
	case Nothing, Reconcile, Restore:
	}
	if order := c.Annotations[gardener.AnnotationOperation]; order == gardener.OrderMigrate || order == gardener.OrderRestore {
		delete(c.Annotations, gardener.AnnotationOperation)
	}
	if len(was.Finalizers) == len(c.Finalizers) && len(was.Annotations) == len(c.Annotations) {
		return nil
	}
	err := r.Client.Patch(ctx, c, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("release ContainerRuntime %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// write stores the status if it says something new.
func (r *Reconciler) write(ctx context.Context, c *gardener.ContainerRuntime, o ending) error {
	was := c.DeepCopy()
	for _, one := range o.conditions {
		condition(c, one, r.Now())
	}
	if o.status != nil {
		c.Status.ProviderStatus = o.status
	}
	if o.state != nil {
		c.Status.State = o.state
	}
	record(c, o, r.Now())
	if sameStatus(&was.Status, &c.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, c, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the status of ContainerRuntime %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// task makes a runtime out, or says what keeps it from that.
func (r *Reconciler) task(ctx context.Context, c *gardener.ContainerRuntime) (*task, error) {
	if moved := placed.Moved(c); len(moved) > 0 {
		return nil, misconfigured(moved.ToAggregate())
	}
	known := validate.Known{Plugins: r.Plugins}
	result := known.Runtime(c)
	if err := result.Err(); err != nil {
		return nil, misconfigured(err)
	}
	if err := r.alone(ctx, known, c); err != nil {
		return nil, err
	}
	t := &task{object: c, about: r.Plugin.Describe(), payload: &v1alpha1.RuntimePayload{}}
	err := r.Client.Get(ctx, types.NamespacedName{Name: t.about.Type}, t.payload)
	if apierrors.IsNotFound(err) {
		return nil, misconfigured(fmt.Errorf("there is no RuntimePayload %s, so nothing can be installed: create one", t.about.Type))
	}
	if err != nil {
		return nil, fmt.Errorf("get RuntimePayload %s: %w", t.about.Type, err)
	}
	release := known.Release(t.payload)
	if err := release.Err(); err != nil {
		return nil, misconfigured(fmt.Errorf("RuntimePayload %s: %w", t.about.Type, err))
	}
	settings, faults := r.Plugin.Configure(raw(c), &t.payload.Spec.Manifest, providerConfig)
	if len(faults) > 0 {
		return nil, misconfigured(faults.ToAggregate())
	}
	if _, err := plugin.Classes(t.about, &t.payload.Spec.Manifest, settings); err != nil {
		return nil, misconfigured(err)
	}
	t.settings = settings
	pools, err := r.engine.pools(ctx)
	if err != nil {
		return nil, err
	}
	t.pool = pools[c.Spec.WorkerPool.Name]
	t.classes, err = r.agreed(ctx, t, pools)
	return t, err
}

// alone refuses the younger of two objects that ask for the same runtime on a pool.
func (r *Reconciler) alone(ctx context.Context, known validate.Known, c *gardener.ContainerRuntime) error {
	var all gardener.ContainerRuntimeList
	if err := r.Client.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	older := slices.DeleteFunc(placed.All(all.Items), func(o gardener.ContainerRuntime) bool { return nodes.Older(o, *c) >= 0 })
	if twin := known.RuntimeTwin(c, older); twin != nil {
		return misconfigured(twin)
	}
	return nil
}
