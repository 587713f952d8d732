package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// How long an API server is asked for what the caches do not have, and for how
// long its answer that there is none holds. API servers wait for us meanwhile.
const (
	lookupTime    = 1500 * time.Millisecond
	lookupsAtOnce = 8 // names come with requests, and a flood of them must not reach the API server
	absentFor     = time.Second
	mostAbsents   = 1000
)

// known is what is known of the cluster, as the rules want it.
type known struct {
	client *cluster.Client
	cache  *cluster.Cache
	log    *slog.Logger

	nodes    atomic.Uint64 // another whenever nodes can do something else
	fleet    memo[*policy.Fleet]
	fallback memo[string] // the cluster's default class
	policies memo[*policies]
	sorted   memo[*policy.Catalog]
	lookups  *semaphore.Weighted

	mu     sync.Mutex
	absent map[string]time.Time // classes that the API server does not have
}

// newKnown must be called before the cache runs.
func newKnown(client *cluster.Client, cache *cluster.Cache, log *slog.Logger) *known {
	k := &known{client: client, cache: cache, log: log, absent: map[string]time.Time{}, lookups: semaphore.NewWeighted(lookupsAtOnce)}
	cache.Nodes.OnChange(func(_ string, old, now *corev1.Node) {
		if !sameAbilities(old, now) {
			k.nodes.Add(1)
		}
	})
	return k
}

// sameAbilities says that handlers can do on a node what they could: kubelets
// write to their nodes every few minutes, and nearly always it is not about that.
func sameAbilities(a, b *corev1.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(featureNotes(a), featureNotes(b)) &&
		equality.Semantic.DeepEqual(a.Status.RuntimeHandlers, b.Status.RuntimeHandlers) &&
		equality.Semantic.DeepEqual(a.Status.Features, b.Status.Features)
}

func featureNotes(n *corev1.Node) map[string]string {
	out := maps.Clone(n.Annotations)
	maps.DeleteFunc(out, func(key, _ string) bool { return !strings.HasPrefix(key, policy.AnnotationFeaturesPrefix) })
	return out
}

// memo keeps what was worked out of something until that is another.
type memo[T any] struct {
	mu       sync.Mutex
	made     bool
	revision uint64
	value    T
}

func (m *memo[T]) get(revision uint64, work func() T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.made || m.revision != revision {
		m.value, m.revision, m.made = work(), revision, true
	}
	return m.value
}

// policies are those of the cluster, ready for use.
type policies struct {
	all    policy.Set
	broken int // of those that cannot be compiled

	mu sync.Mutex
	by map[string]selected // by namespace
}

// selected is the policies for a namespace with these labels.
type selected struct {
	labels map[string]string
	set    policy.Set
}

func (k *known) compile() *policies {
	p := &policies{by: map[string]selected{}}
	var ready []*policy.Policy
	for _, one := range k.cache.Policies.List() {
		c, err := policy.Compile(one)
		if err != nil {
			p.broken++
			k.log.Warn("a policy cannot be used: pods that it is about are refused, or warned of, by its mode", "error", err)
			c = policy.Unusable(one, err)
		}
		ready = append(ready, c)
	}
	p.all = policy.NewSet(ready...)
	return p
}

// forNamespace is the policies of a namespace. To hold hundreds of selectors
// against the same labels for every pod would cost more than all the rest.
func (p *policies) forNamespace(ns *corev1.Namespace) policy.Set {
	if ns == nil {
		return p.all.For(nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.by[ns.Name]; ok && maps.Equal(s.labels, ns.Labels) {
		return s.set
	}
	s := selected{labels: ns.Labels, set: p.all.For(ns)}
	if len(p.by) >= mostNamespaces {
		clear(p.by)
	}
	p.by[ns.Name] = s
	return s.set
}

// mostNamespaces bounds what is remembered: names come with requests.
const mostNamespaces = 20_000

func (k *known) compiled() *policies { return k.policies.get(k.cache.Policies.Revision(), k.compile) }

func (k *known) measured() *policy.Fleet {
	return k.fleet.get(k.nodes.Load(), func() *policy.Fleet { return policy.NewFleet(k.cache.Nodes.List()) })
}

func (k *known) defaultClass() string {
	return k.fallback.get(k.cache.Classes.Revision(), func() string {
		class, all := policy.DefaultOf(k.cache.Classes.List())
		if len(all) > 1 {
			k.log.Warn("more than one class says that it is the default; the first of them is", "classes", strings.Join(all, ","), "annotation", policy.AnnotationDefault)
		}
		if class == nil {
			return ""
		}
		return class.Name
	})
}

func (k *known) catalog() *policy.Catalog {
	return k.sorted.get(k.cache.Classes.Revision(), func() *policy.Catalog { return policy.NewCatalog(k.cache.Classes) })
}

// admission is the rules for one namespace.
func (k *known) admission(ns *corev1.Namespace, legacy runtimeclass.Legacy) policy.Admission {
	return policy.Admission{
		Classes: k.catalog(), Legacy: legacy, Policies: k.compiled().forNamespace(ns),
		Default: k.defaultClass(), Fleet: k.measured(), Shallow: true,
	}
}

// namespace is the labels of a namespace. Its pods may be created before the
// watch tells of it, so that what is missing is asked for. Nil is none: the API
// server will refuse the pod.
func (k *known) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if ns := k.cache.Namespaces.Get(name); ns != nil || name == "" {
		return ns, nil
	}
	return lookUp(ctx, k, "look up the labels of a namespace", func(ctx context.Context) (*corev1.Namespace, error) {
		return k.client.Namespace(ctx, name)
	})
}

// class asks the API server for a class that the cache does not have; nil is none.
func (k *known) class(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	if k.isAbsent(name) || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil // pods are validated after mutating webhooks
	}
	return lookUp(ctx, k, "look up a class that is not in the cache", func(ctx context.Context) (*nodev1.RuntimeClass, error) {
		if k.isAbsent(name) {
			return nil, nil // another request has asked while this one waited
		}
		class, err := k.client.Class(ctx, name)
		if apierrors.IsNotFound(err) {
			k.setAbsent(name)
		}
		return class, err
	})
}

// lookUp asks the API server, when it is this request's turn; nil is none.
func lookUp[T any](ctx context.Context, k *known, what string, ask func(context.Context) (*T, error)) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	if err := k.lookups.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("%s: wait for other requests to end: %w: %w", what, err, errdefs.ErrUnavailable)
	}
	defer k.lookups.Release(1)
	found, err := ask(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", what, err, errdefs.ErrUnavailable)
	}
	return found, nil
}

// isAbsent says that the API server was asked just now: a controller whose pods
// are refused tries again and again.
func (k *known) isAbsent(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	until, ok := k.absent[name]
	return ok && time.Now().Before(until)
}

func (k *known) setAbsent(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.absent) >= mostAbsents {
		clear(k.absent)
	}
	k.absent[name] = time.Now().Add(absentFor)
}

// withFound is classes, and some that the cache has not heard of yet.
type withFound struct {
	runtimeclass.Classes
	found runtimeclass.Map
}

// Get is a class of the cache, or else one that was found.
func (w withFound) Get(name string) *nodev1.RuntimeClass {
	if c := w.Classes.Get(name); c != nil {
		return c
	}
	return w.found.Get(name)
}

// Names is all of them.
func (w withFound) Names() []string {
	names := slices.Concat(w.Classes.Names(), w.found.Names())
	slices.Sort(names)
	return slices.Compact(names)
}
