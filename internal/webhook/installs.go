package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/operator/plugins"
	"fairlead.run/internal/operator/validate"
	"fairlead.run/internal/webhook/runtimes"
)

// installs is what the rules about pools and runtimes are told of the cluster.
type installs struct {
	client *cluster.Client
	cache  *cluster.Cache
}

// installRules answer for what brings runtimes to nodes. In a garden cluster there is
// nothing but shoots.
func installRules(client *cluster.Client, cache *cluster.Cache, o Options) (paths map[string]rule, shoots rule) {
	r := &runtimes.Rules{Plugins: plugins.All()}
	if o.Garden {
		r.Garden = newProfiles(client)
		r.Capability, _ = validate.ParseCapability(o.Capability) // the options were validated
		return nil, r.Shoots
	}
	r.Cluster = &installs{client, cache}
	return map[string]rule{
		"validate-workerpools": r.Pools, "validate-runtimepayloads": r.Payloads, "validate-containerruntimes": r.Runtimes,
		"validate-class-deletions": r.ClassDeletions,
	}, r.Shoots
}

// Pools are all WorkerPools; none without their CRD.
func (i *installs) Pools(ctx context.Context) (out []v1alpha1.WorkerPool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	err = i.client.List(ctx, v1alpha1.SchemeGroupVersion.WithResource("workerpools"), func(page runtime.Object) error {
		out = append(out, page.(*v1alpha1.WorkerPoolList).Items...)
		return nil
	})
	return out, missing(err)
}

// Payload is that of a type.
func (i *installs) Payload(ctx context.Context, typ string) (*v1alpha1.RuntimePayload, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	p := &v1alpha1.RuntimePayload{}
	err := i.client.REST(v1alpha1.SchemeGroupVersion).Get().Resource("runtimepayloads").Name(typ).Do(ctx).Into(p)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get RuntimePayload %s: %w: %w", typ, err, errdefs.ErrUnavailable)
	}
	return p, nil
}

// Runtimes are the ContainerRuntimes of a namespace.
func (i *installs) Runtimes(ctx context.Context, namespace string) ([]gardener.ContainerRuntime, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	list := &gardener.ContainerRuntimeList{}
	err := i.client.REST(gardener.SchemeGroupVersion).Get().Namespace(namespace).Resource("containerruntimes").Do(ctx).Into(list)
	return list.Items, missing(err)
}

// Class is one that the cache has.
func (i *installs) Class(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return i.cache.Classes.Get(name), nil
}

// Users are the pods of the cache that have a class.
func (i *installs) Users(class string) []string {
	var out []string
	for _, p := range i.cache.Pods.List() {
		if p.Class == class {
			out = append(out, p.Key())
		}
	}
	return out
}

// Nodes are those of the cache.
func (i *installs) Nodes() []*corev1.Node { return i.cache.Nodes.List() }

// Version is that of the API server, which tells it to everybody.
func (i *installs) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	text, err := i.client.JSON(ctx, "/version")
	if err != nil {
		return "", err
	}
	var is version.Info
	if err := json.Unmarshal(text, &is); err != nil {
		return "", fmt.Errorf("read the version of the API server: %w", err)
	}
	return is.GitVersion, nil
}

// missing makes nothing of a CRD that is not there.
func missing(err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("ask the API server: %w: %w", err, errdefs.ErrUnavailable)
}
