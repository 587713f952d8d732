package containerruntime

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// task is a runtime on a pool, made out.
type task struct {
	object   *gardener.ContainerRuntime
	about    plugin.Description
	payload  *v1alpha1.RuntimePayload
	settings plugin.Settings
	pool     *v1alpha1.WorkerPool // nil if the pool is none of ours
	classes  agreement
}

// engine brings what is wanted about. Each call does what it can, and is made again
// when something has changed, until it is done.
type engine interface {
	// pools are the WorkerPools by their names, where there are any.
	pools(ctx context.Context) (map[string]*v1alpha1.WorkerPool, error)
	// apply has the runtime put on the nodes.
	apply(ctx context.Context, t *task) (outcome, error)
	// remove has it taken away again, by its own name. It refuses while pods use it.
	remove(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error)
	// forget takes away what is in the cluster, and leaves nodes as they are.
	forget(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error)
}

// errGoing says that what is wanted is there and about to go: another of the name can be
// made only then.
var errGoing = errors.New("is being deleted")

// going is errGoing of an object that is being deleted, with what holds it back; nil of
// another one.
func going(o client.Object) error {
	if o.GetDeletionTimestamp() == nil {
		return nil
	}
	return fmt.Errorf("%s %w%s", called(o), errGoing, holding(o))
}

// holding is what keeps an object that is being deleted.
func holding(o client.Object) string {
	if all := o.GetFinalizers(); len(all) > 0 {
		return " and waits for its finalizers: " + strings.Join(all, ", ")
	}
	return ""
}

// anew is what to say while what is wanted is about to go.
func anew(err error) string { return err.Error() + "; it is made anew when it is gone" }

// called is an object for people. Only objects that are read as JSON know their kinds.
func called(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = reflect.TypeOf(o).Elem().Name()
	}
	return kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}
