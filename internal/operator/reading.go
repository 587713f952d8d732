package operator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/containerruntime"
)

// kept are the kinds that the controllers have in memory.
func kept(inGardener bool, keeper *classes.Keeper) []client.Object {
	both := []client.Object{&gardener.ContainerRuntime{}, &v1alpha1.RuntimePayload{}}
	if inGardener {
		return append(both, containerruntime.Config())
	}
	return append(both, &v1alpha1.WorkerPool{}, &corev1.Node{}, &corev1.Pod{}, &corev1.ConfigMap{}, &appsv1.DaemonSet{}, keeper.Object())
}

// reading has the cluster read on every replica, whether it leads or not: one that
// waits is ready only when it could take over, and begins at once when it does.
type reading struct {
	cache cache.Cache
	kinds []client.Object

	mu        sync.Mutex
	informers map[int]cache.Informer // by the place in kinds
}

// addReading has a manager read these kinds, and not be ready before it has. Each is a
// check of its own: the probe tells the names of those that fail, and not why.
func addReading(m manager.Manager, kinds []client.Object) error {
	r := &reading{cache: m.GetCache(), kinds: kinds, informers: map[int]cache.Informer{}}
	for at, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, m.GetScheme())
		if err != nil {
			return fmt.Errorf("name a kind that is read: %w", err)
		}
		name := "read-" + strings.ToLower(gvk.Kind)
		if err := m.AddReadyzCheck(name, func(*http.Request) error { return r.check(at, gvk.Kind) }); err != nil {
			return fmt.Errorf("add the check %s: %w", name, err)
		}
	}
	return m.Add(r)
}

// NeedLeaderElection says that it does not wait for it.
func (r *reading) NeedLeaderElection() bool { return false }

// Start begins with the reading. The manager's cache runs by then: what is asked of it
// earlier keeps the manager from ending while it cannot be had.
func (r *reading) Start(ctx context.Context) error {
	for at, kind := range r.kinds {
		informer, err := r.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("read %T: %w", kind, err)
		}
		r.mu.Lock()
		r.informers[at] = informer
		r.mu.Unlock()
	}
	<-ctx.Done()
	return nil
}

func (r *reading) check(at int, kind string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if informer := r.informers[at]; informer == nil || !informer.HasSynced() {
		return fmt.Errorf("%s objects have not been read yet; most often the API server is away, or the account may not list or watch them", kind)
	}
	return nil
}
