package containerruntime

import (
	"context"

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
	// migrate lets go of what whoever takes over elsewhere makes again, and takes nothing off
	// nodes and clusters.
	migrate(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error)
	// forget takes away what is in the cluster, and leaves nodes as they are.
	forget(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error)
}
