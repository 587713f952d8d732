// Package objects has what pods need of the API server beside themselves:
// ConfigMaps and Secrets that they refer to, tokens of their ServiceAccounts,
// claims and volumes, RuntimeClasses, and the Services that they have in their
// environment. It reads only what a node may read.
package objects

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
)

// Objects are those that pods of one node need.
type Objects struct {
	client     *cluster.Client
	configMaps *family[*corev1.ConfigMap]
	secrets    *family[*corev1.Secret]
	classes    *cluster.Cache
	services   *cluster.Store[*corev1.Service]
	follow     func(context.Context)
	tokens     *tokens
}

// New makes a set that is empty until Run. Changed is called with the pods that
// refer to a ConfigMap or a Secret when that is read first, and each time when it
// may be another one. Trouble is called with a pod whose token cannot be renewed, once as
// long as it is for the same reason. Neither may wait for anything.
func New(client *cluster.Client, changed func(pods []types.UID), trouble func(pod *corev1.Pod, err error), log *slog.Logger) *Objects {
	core := corev1.SchemeGroupVersion
	o := &Objects{client: client, tokens: newTokens(client, trouble)}
	o.configMaps = newFamily(client, core.WithResource("configmaps"), func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		func(c *corev1.ConfigMap) bool { return c.Immutable != nil && *c.Immutable })
	o.secrets = newFamily(client, core.WithResource("secrets"), func() *corev1.Secret { return &corev1.Secret{} },
		func(s *corev1.Secret) bool { return s.Immutable != nil && *s.Immutable })
	o.configMaps.changed, o.secrets.changed = changed, changed
	o.classes = cluster.NewCache(client, cluster.Options{Log: log, Only: []string{cluster.Classes}})
	o.services, o.follow = cluster.Follow(client, cluster.Query{From: core.WithResource("services"), Log: log}, &corev1.Service{}, addressed)
	return o
}

// addressed is a Service without what its variables do not say.
func addressed(s *corev1.Service) *corev1.Service {
	out := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion, CreationTimestamp: s.CreationTimestamp},
		Spec:       corev1.ServiceSpec{Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP},
	}
	for _, p := range s.Spec.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: p.Name, Port: p.Port, Protocol: p.Protocol})
	}
	return out
}

// Run keeps all of it fresh until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { o.configMaps.run(ctx) })
	running.Go(func() { o.secrets.run(ctx) })
	running.Go(func() { o.follow(ctx) })
	running.Go(func() { _ = o.classes.Run(ctx) })
	running.Wait()
	return nil
}

// Hold has what a pod refers to read and watched, up to Release. It may be called
// again when the pod has changed.
func (o *Objects) Hold(pod *corev1.Pod) {
	r := podspec.ReferencesOf(pod)
	o.configMaps.hold(pod.UID, pod.Namespace, r.ConfigMaps)
	o.secrets.hold(pod.UID, pod.Namespace, r.Secrets)
}

// Release ends what only that pod needs, its tokens too.
func (o *Objects) Release(pod types.UID) {
	o.configMaps.hold(pod, "", nil)
	o.secrets.hold(pod, "", nil)
	o.tokens.forget(pod)
}

// ConfigMap is one that a pod refers to; read only. The error of one that does not
// exist is that of the API server.
func (o *Objects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return o.configMaps.get(ctx, namespace, name)
}

// Secret is one that a pod refers to; read only.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return o.secrets.get(ctx, namespace, name)
}

// Claim is a PersistentVolumeClaim as it is now.
func (o *Objects) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	out := &corev1.PersistentVolumeClaim{}
	err := o.client.REST(corev1.SchemeGroupVersion).Get().Namespace(namespace).Resource("persistentvolumeclaims").Name(name).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("get claim %s/%s: %w", namespace, name, err)
	}
	return out, nil
}

// Volume is a PersistentVolume as it is now.
func (o *Objects) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	out := &corev1.PersistentVolume{}
	err := o.client.REST(corev1.SchemeGroupVersion).Get().Resource("persistentvolumes").Name(name).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("get volume %s: %w", name, err)
	}
	return out, nil
}

// ServiceAccount is one as it is now. A node may read those of its pods.
func (o *Objects) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	out := &corev1.ServiceAccount{}
	err := o.client.REST(corev1.SchemeGroupVersion).Get().Namespace(namespace).Resource("serviceaccounts").Name(name).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("get ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return out, nil
}

// Class is a RuntimeClass. One that was made a moment ago may not be heard of yet,
// so what is not known is asked for.
func (o *Objects) Class(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	if c := o.classes.Classes.Get(name); c != nil {
		return c, nil
	}
	return o.client.Class(ctx, name)
}

// Services are those of a namespace, and the API server's own, whose variables a
// pod there gets. They are unavailable until they have been read once.
func (o *Objects) Services(namespace string) ([]*corev1.Service, error) {
	if s := o.services.Status(); !s.Synced {
		return nil, fmt.Errorf("list services: %w: %s", errdefs.ErrUnavailable, s.Trouble)
	}
	var out []*corev1.Service
	for _, s := range o.services.List() {
		if s.Namespace == namespace || s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes" {
			out = append(out, s)
		}
	}
	return out, nil
}
