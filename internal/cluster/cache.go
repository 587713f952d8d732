package cluster

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/fields"

	"fairlead.run/api/v1alpha1"
)

// The resources that can be kept, by the names that an API server has for them.
const (
	Classes    = "runtimeclasses"
	Policies   = "runtimeclasspolicies"
	Namespaces = "namespaces"
	Nodes      = "nodes"
	Pods       = "pods"
)

// Options say what a Cache keeps.
type Options struct {
	Log *slog.Logger // nil for none
	// Only names the resources that are wanted; nil is all of them. The stores
	// of others stay empty.
	Only []string
	// PodDetails keeps what the place of a pod depends on, and not only what it
	// counts as.
	PodDetails bool
}

// Cache is what is known of a cluster. Only pods that have not ended are kept.
type Cache struct {
	Classes    *Store[*nodev1.RuntimeClass]
	Policies   *Store[*v1alpha1.RuntimeClassPolicy] // none, as long as the CRD is missing
	Namespaces *Store[*corev1.Namespace]            // name and labels
	Nodes      *Store[*corev1.Node]                 // without addresses and images
	Pods       *Store[*Pod]

	client *Client
	feeds  []feeder
}

// feeder keeps one store fresh.
type feeder interface {
	run(ctx context.Context, client *Client)
	Status() Status
}

// NewCache makes a cache that is empty until Run.
func NewCache(client *Client, o Options) *Cache {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache{client: client}
	c.Classes = keep(c, o, source[*nodev1.RuntimeClass, *nodev1.RuntimeClass]{
		from: nodev1.SchemeGroupVersion.WithResource(Classes), like: &nodev1.RuntimeClass{}, strip: stripClass, keep: itself[*nodev1.RuntimeClass],
	})
	c.Policies = keep(c, o, source[*v1alpha1.RuntimeClassPolicy, *v1alpha1.RuntimeClassPolicy]{
		from: v1alpha1.SchemeGroupVersion.WithResource(Policies), like: &v1alpha1.RuntimeClassPolicy{}, strip: stripPolicy, keep: itself[*v1alpha1.RuntimeClassPolicy],
	})
	c.Policies.optional = true
	c.Namespaces = keep(c, o, source[*corev1.Namespace, *corev1.Namespace]{
		from: corev1.SchemeGroupVersion.WithResource(Namespaces), like: &corev1.Namespace{}, strip: stripNamespace, keep: itself[*corev1.Namespace],
	})
	c.Nodes = keep(c, o, source[*corev1.Node, *corev1.Node]{
		from: corev1.SchemeGroupVersion.WithResource(Nodes), like: &corev1.Node{}, strip: stripNode, keep: itself[*corev1.Node],
	})
	pods := source[*corev1.Pod, *Pod]{
		from: corev1.SchemeGroupVersion.WithResource(Pods), like: &corev1.Pod{}, strip: stripToBrief, keep: briefPod,
		selector: fields.AndSelectors(
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed))),
	}
	if o.PodDetails {
		pods.strip, pods.keep = stripToDetails, detailedPod
	}
	c.Pods = keep(c, o, pods)
	return c
}

// keep makes the store of a source, and has it fed if it is wanted.
func keep[O object, T any](c *Cache, o Options, from source[O, T]) *Store[T] {
	s := newStore[T](from.from.Resource, o.Log)
	if o.Only == nil || slices.Contains(o.Only, s.resource) {
		c.feeds = append(c.feeds, &feed[O, T]{from, s})
	}
	return s
}

func itself[T any](o T) T { return o }

// Run keeps the cache fresh until ctx ends. What fails is tried again.
func (c *Cache) Run(ctx context.Context) error {
	var feeds sync.WaitGroup
	for _, f := range c.feeds {
		feeds.Go(func() { f.run(ctx, c.client) })
	}
	feeds.Wait()
	return nil
}

// Synced says that every resource that is wanted has been read once.
func (c *Cache) Synced() bool {
	for _, f := range c.feeds {
		if !f.Status().Synced {
			return false
		}
	}
	return true
}

// Status is how fresh each resource is that is wanted.
func (c *Cache) Status() []Status {
	out := make([]Status, 0, len(c.feeds))
	for _, f := range c.feeds {
		out = append(out, f.Status())
	}
	return out
}
