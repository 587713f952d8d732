// Package operator puts the controllers together that bring container runtimes to the
// nodes of a cluster. Each has a folder here; what they share of the rules is pure and
// has folders of its own.
package operator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/cluster"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/containerruntime"
	"fairlead.run/internal/operator/install"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/options"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/plugins"
	"fairlead.run/internal/operator/workerpool"
)

// lease is the name of the Lease by which one of several replicas leads.
const lease = "fairlead-operator"

// Scheme knows what the operator reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	groups := runtime.NewSchemeBuilder(corev1.AddToScheme, appsv1.AddToScheme, nodev1.AddToScheme, nodev1beta1.AddToScheme,
		coordinationv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme, gardener.AddToScheme)
	if err := groups.AddToScheme(s); err != nil { // the same types are always the same
		panic("operator: make a scheme: " + err.Error())
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

// Main parses the command line and runs the operator until ctx ends.
func Main(ctx context.Context, o options.Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	to, err := cluster.Config(o.Kubeconfig, o.Context)
	if err != nil {
		return err
	}
	return Run(ctx, to, o, logger(o))
}

func logger(o options.Options) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(strings.ToUpper(o.LogLevel))) // it was validated
	to := &slog.HandlerOptions{Level: level}
	if o.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(os.Stderr, to))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, to))
}

// Run runs the operator until ctx ends, or it leads no more.
func Run(ctx context.Context, to *rest.Config, o options.Options, l *slog.Logger) error {
	log.SetLogger(logr.FromSlogHandler(l.Handler()))
	with := managerOptions(o)
	var asked *reviews
	if o.Gardener && o.Webhook != "0" {
		var err error
		if asked, err = newReviews(to, o, l); err != nil {
			return err
		}
		with.WebhookServer = asked.server
	}
	m, err := manager.New(to, with)
	if err != nil {
		return fmt.Errorf("make a manager for %s: %w", to.Host, err)
	}
	if err := complete(m); err != nil {
		return err
	}
	if err := Add(m, o, plugins.All()); err != nil {
		return err
	}
	if asked != nil {
		if err := asked.addTo(m, plugins.All()); err != nil {
			return err
		}
	}
	if err := m.AddHealthzCheck("process", func(*http.Request) error { return nil }); err != nil {
		return fmt.Errorf("add a health check: %w", err)
	}
	l.Info("operator begins", "namespace", o.Namespace, "gardener", o.Gardener)
	return m.Start(ctx)
}

func managerOptions(o options.Options) manager.Options {
	own := map[string]cache.Config{o.Namespace: {}}
	by := map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: stripNode},
	}
	if !o.Gardener {
		by[&gardener.ContainerRuntime{}] = cache.ByObject{Namespaces: own}
		by[&appsv1.DaemonSet{}] = cache.ByObject{Namespaces: own}
		made := labels.SelectorFromSet(labels.Set{names.ManagedBy: names.Manager})
		by[&corev1.Pod{}] = cache.ByObject{Namespaces: own, Label: made}
		by[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: own, Label: made}
	}
	return manager.Options{
		Scheme: Scheme(), Metrics: metricsserver.Options{BindAddress: o.Metrics},
		HealthProbeBindAddress: o.Health, LivenessEndpointName: "/livez", ReadinessEndpointName: "/readyz",
		LeaderElection: o.Elect, LeaderElectionID: lease, LeaderElectionNamespace: o.Namespace, LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{ByObject: by, DefaultTransform: cache.TransformStripManagedFields()},
		// Names are for metrics; only tests have more than one operator in a process.
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
		// They are written, and read again only to compare.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	}
}

// stripNode leaves out what is long and of no interest here.
func stripNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields, n.Status.Images, n.Status.VolumesAttached, n.Status.VolumesInUse = nil, nil, nil, nil
	}
	return o, nil
}

// complete says which CRDs are missing: without them the manager would wait, and say
// so after two minutes only.
func complete(m manager.Manager) error {
	kinds := map[schema.GroupVersionKind]string{
		gardener.SchemeGroupVersion.WithKind("ContainerRuntime"): "deploy/crds/gardener",
		v1alpha1.SchemeGroupVersion.WithKind("RuntimePayload"):   "deploy/crds",
		v1alpha1.SchemeGroupVersion.WithKind("WorkerPool"):       "deploy/crds",
	}
	for kind, folder := range kinds {
		if _, err := m.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			if meta.IsNoMatchError(err) {
				return fmt.Errorf("the cluster has no %s; create its CRD: kubectl create -f %s", kind.GroupKind(), folder)
			}
			return fmt.Errorf("ask for %s: %w", kind.GroupKind(), err)
		}
	}
	return nil
}

// withAppArmor is the first release of Kubernetes in which profiles of AppArmor are fields
// of pods.
var withAppArmor = version.MajorMinor(1, 30)

// annotatesAppArmor says whether the API server is older than that. It is asked once: one
// that is upgraded later still takes the annotations.
func annotatesAppArmor(m manager.Manager) (bool, error) {
	asks, err := discovery.NewDiscoveryClientForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return false, fmt.Errorf("make a client for the version of the API server: %w", err)
	}
	is, err := asks.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("ask for the version of the API server: %w", err)
	}
	v, err := version.ParseGeneric(is.GitVersion)
	if err != nil {
		return false, fmt.Errorf("read the version of the API server: %w", err)
	}
	return v.LessThan(withAppArmor), nil
}

// Add has a manager run the controllers.
func Add(m manager.Manager, o options.Options, set plugin.Set) error {
	_, err := m.GetRESTMapper().RESTMapping(schema.GroupKind{Group: nodev1.GroupName, Kind: "RuntimeClass"}, "v1")
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("ask for the version of RuntimeClasses: %w", err)
	}
	keeper := &classes.Keeper{Client: m.GetClient(), Live: m.GetAPIReader(), Beta: err != nil}
	passes := &nodes.Passes{}
	if err := addReading(m, kept(o.Gardener, keeper)); err != nil {
		return err
	}
	of := install.Cluster{Account: o.Account}
	if !o.Gardener {
		if of.AnnotatesAppArmor, err = annotatesAppArmor(m); err != nil {
			return err
		}
	}
	for _, p := range set.All() {
		r := &containerruntime.Reconciler{Client: m.GetClient(), Plugin: p, Plugins: set, Now: time.Now}
		if o.Gardener {
			r = containerruntime.InGardener(r)
		} else {
			r = containerruntime.OnNodes(r, keeper, of, passes)
		}
		if err := r.AddTo(m); err != nil {
			return fmt.Errorf("add the controller of %s: %w", p.Describe().Type, err)
		}
	}
	if o.Gardener {
		return nil // Gardener has its own pools, and nodes that nobody else labels
	}
	pools := &workerpool.Reconciler{Client: m.GetClient(), Live: m.GetAPIReader(), Namespace: o.Namespace, Plugins: set, Passes: passes, Now: time.Now}
	if err := pools.AddTo(m); err != nil {
		return fmt.Errorf("add the controller of pools: %w", err)
	}
	all := &nodes.Reconciler{Client: m.GetClient(), Live: m.GetAPIReader(), Namespace: o.Namespace, Plugins: set, Classes: keeper, Passes: passes, Now: time.Now}
	if err := all.AddTo(m); err != nil {
		return fmt.Errorf("add the controller of nodes: %w", err)
	}
	return nil
}
