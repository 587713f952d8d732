package containerruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/classes"
	"fairlead.run/internal/operator/going"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/osc"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/pkg/runtimeclass"
)

// Gardener's kinds that are read or written as JSON.
var (
	oscKind      = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "OperatingSystemConfig"}
	workerKind   = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	clusterKind  = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Cluster"}
	resourceKind = schema.GroupVersionKind{Group: "resources.gardener.cloud", Version: "v1alpha1", Kind: "ManagedResource"}
)

// inGardener has Gardener do it: machines follow an OperatingSystemConfig, and the
// cluster's classes a ManagedResource. No node is touched, and no cluster but the seed.
type inGardener struct {
	client  client.Client
	plugins plugin.Set
}

// InGardener has a reconciler act in a seed.
func InGardener(r *Reconciler) *Reconciler {
	r.engine = &inGardener{client: r.Client, plugins: r.Plugins}
	return r
}

// Config is an empty OperatingSystemConfig.
func Config() client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(oscKind)
	return u
}

// watchGardener has what Gardener writes over written again.
func (r *Reconciler) watchGardener(b *builder.Builder) *builder.Builder {
	return b.Watches(Config(), handler.EnqueueRequestsFromMapFunc(r.ofConfig), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
}

func (r *Reconciler) ofConfig(ctx context.Context, o client.Object) []reconcile.Request {
	pool := o.GetLabels()[gardener.LabelPool]
	return r.those(ctx, func(c *gardener.ContainerRuntime) bool {
		return c.Namespace == o.GetNamespace() && c.Spec.WorkerPool.Name == pool
	})
}

// pools are none: Gardener has its own, and a seed lets nobody read ours.
func (e *inGardener) pools(context.Context) (map[string]*v1alpha1.WorkerPool, error) { return nil, nil }

// entries are those of a runtime in the OperatingSystemConfigs of its pool.
func (e *inGardener) entries(ctx context.Context, t *task) (osc.Entries, error) {
	arch, err := e.architecture(ctx, t.object)
	if err != nil {
		return osc.Entries{}, err
	}
	if all := t.payload.Spec.Manifest.Architectures; !slices.Contains(all, arch) {
		return osc.Entries{}, misconfigured(fmt.Errorf("machines of pool %s are %s, and RuntimePayload %s has programs for %s only: add those for %s to it, or take %s off this pool",
			t.object.Spec.WorkerPool.Name, arch, t.about.Type, strings.Join(all, ", "), arch, t.about.Type))
	}
	order := osc.Order{Image: t.payload.Spec.Image, Payload: &t.payload.Spec.Manifest, Settings: t.settings.Install, Arch: arch, BinaryPath: t.object.Spec.BinaryPath}
	files, err := order.Files()
	if err != nil {
		return osc.Entries{}, misconfigured(err)
	}
	plugins, err := order.Plugins()
	if err != nil {
		return osc.Entries{}, misconfigured(err)
	}
	if len(plugins) == 0 {
		return osc.Entries{}, misconfigured(fmt.Errorf("RuntimePayload %s has no handler for containerd, which is what machines of Gardener's have: add one to it", t.about.Type))
	}
	return osc.Entries{Files: files, Plugins: plugins, Base: osc.Base(t.object.Spec.BinaryPath, t.about.Type), Handlers: handlersOf(t)}, nil
}

func (e *inGardener) apply(ctx context.Context, t *task) (outcome, error) {
	with, err := e.entries(ctx, t)
	if err != nil {
		return outcome{}, err
	}
	had, err := e.put(ctx, t.object, with)
	if err != nil {
		return outcome{}, err
	}
	n := len(had)
	text, err := osc.Encode(had)
	if err != nil {
		return outcome{}, fmt.Errorf("write what is in OperatingSystemConfigs: %w", err)
	}
	state := &runtime.RawExtension{Raw: text}
	if typ, asked := t.object.Spec.Type, t.classes.asked; asked != typ {
		t.classes.lost = append(t.classes.lost, fmt.Sprintf("its RuntimeClasses lead to nodes with the label %s, as the older %s asks for %s, and nodes of pool %s have %s: ask for it by one name in all pools",
			names.Requested+asked, t.classes.asker, asked, t.object.Spec.WorkerPool.Name, names.Requested+typ))
	}
	err = e.manage(ctx, t)
	if errors.Is(err, going.Err) {
		return outcome{progress: 90, says: going.Anew(err), state: state, soon: true}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	if n == 0 {
		return outcome{}, problem{fmt.Errorf("namespace %s has no OperatingSystemConfig that machines of pool %s follow (label %s, purpose reconcile), so that nothing brings %s to them; gardenlet makes one for each pool, and it is looked for again", t.object.Namespace, t.object.Spec.WorkerPool.Name, gardener.LabelPool, t.about.Type), gardener.CodeRetryable}
	}
	says := fmt.Sprintf("%s %s is in %d OperatingSystemConfigs of pool %s", t.about.Type, t.payload.Spec.Manifest.Version, n, t.object.Spec.WorkerPool.Name)
	return overruled(outcome{done: true, says: says, conditions: []gardener.Condition{t.classes.condition(nil)}, state: state, later: seldom}, t.classes)
}

func handlersOf(t *task) []string {
	var out []string
	for i := range t.payload.Spec.Manifest.Handlers {
		out = append(out, t.payload.Spec.Manifest.Handlers[i].Name)
	}
	return out
}

// architecture is that of the pool's machines.
func (e *inGardener) architecture(ctx context.Context, c *gardener.ContainerRuntime) (string, error) {
	var workers unstructured.UnstructuredList
	workers.SetGroupVersionKind(workerKind.GroupVersion().WithKind(workerKind.Kind + "List"))
	if err := e.client.List(ctx, &workers, client.InNamespace(c.Namespace)); err != nil {
		return "", fmt.Errorf("list Workers in %s: %w", c.Namespace, err)
	}
	for i := range workers.Items {
		pools, _, _ := unstructured.NestedSlice(workers.Items[i].Object, "spec", "pools")
		for _, one := range pools {
			pool, _ := one.(map[string]any)
			if arch, ok := pool["architecture"].(string); ok && pool["name"] == c.Spec.WorkerPool.Name {
				return arch, nil
			}
		}
	}
	return "amd64", nil // as Gardener has it for pools that do not say
}

// put writes entries into the OperatingSystemConfigs that machines follow once they
// are there, and says what each has then. One that was written anew gets back what it
// had: pods run from the files of the release before.
func (e *inGardener) put(ctx context.Context, c *gardener.ContainerRuntime, with osc.Entries) (map[string]osc.Memory, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(oscKind.GroupVersion().WithKind(oscKind.Kind + "List"))
	if err := e.client.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{gardener.LabelPool: c.Spec.WorkerPool.Name}); err != nil {
		return nil, fmt.Errorf("list OperatingSystemConfigs in %s: %w", c.Namespace, err)
	}
	had, has := remembered(c), map[string]osc.Memory{}
	for i := range list.Items {
		have := &list.Items[i]
		if !followed(have) {
			continue
		}
		want := have.DeepCopy()
		osc.Recall(want.Object, with, had[have.GetName()])
		if err := osc.Put(want.Object, with); err != nil {
			return nil, misconfigured(fmt.Errorf("%s/%s: %w", have.GetNamespace(), have.GetName(), err))
		}
		has[have.GetName()] = with.Of(want.Object)
		if equality.Semantic.DeepEqual(have.Object, want.Object) {
			continue
		}
		order(want)
		if err := e.client.Patch(ctx, want, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("patch OperatingSystemConfig %s/%s: %w", have.GetNamespace(), have.GetName(), err)
		}
	}
	return has, nil
}

// followed says whether machines that are there go by an OperatingSystemConfig.
func followed(u *unstructured.Unstructured) bool {
	purpose, _, _ := unstructured.NestedString(u.Object, "spec", "purpose")
	return purpose == "reconcile" && u.GetDeletionTimestamp() == nil
}

// remembered are the entries that objects had last, by their names.
func remembered(c *gardener.ContainerRuntime) map[string]osc.Memory {
	if c.Status.State == nil {
		return nil
	}
	return osc.Decode(c.Status.State.Raw)
}

// order has whoever looks after a changed object reconcile it, unless another order waits
// there. Extensions for operating systems act on orders alone, and gardenlet waits until
// they have seen the last generation, ours as well as its own.
func order(u *unstructured.Unstructured) {
	all := u.GetAnnotations()
	if _, waits := all[gardener.AnnotationOperation]; waits {
		return
	}
	if all == nil {
		all = map[string]string{}
	}
	all[gardener.AnnotationOperation] = gardener.OrderReconcile
	u.SetAnnotations(all)
}

// manage has the classes applied to the cluster, by Gardener's resource manager.
func (e *inGardener) manage(ctx context.Context, t *task) error {
	beta, err := e.beta(ctx, t.object.Namespace)
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for _, c := range t.classes.classes {
		class := classes.Wanted(t.about.Type, c)
		// Gardener labels the nodes of a pool with what the pool asks for, by the name that it
		// has there.
		class.Scheduling.NodeSelector = map[string]string{names.Requested + t.classes.asked: "true"}
		text, err := manifest(class, beta)
		if err != nil {
			return fmt.Errorf("write RuntimeClass %s: %w", c.Name, err)
		}
		data["runtimeclass-"+c.Name+".yaml"] = text
	}
	mr, secret := managed(t.object.Namespace, t.about.Type)
	err = e.client.Get(ctx, client.ObjectKeyFromObject(mr), mr)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get ManagedResource %s/%s: %w", mr.GetNamespace(), mr.GetName(), err)
	}
	if err := going.Of(mr); err != nil {
		return err
	}
	labels := map[string]string{names.ManagedBy: names.Manager, names.Type: t.about.Type}
	secret.Labels, secret.Data = labels, data
	if failed := e.secret(ctx, secret); failed != nil || err == nil {
		return failed
	}
	mr.SetLabels(labels)
	mr.Object["spec"] = map[string]any{"secretRefs": []any{map[string]any{"name": secret.Name}}}
	if err := e.client.Create(ctx, mr); err != nil {
		return fmt.Errorf("create ManagedResource %s/%s: %w", mr.GetNamespace(), mr.GetName(), err)
	}
	return nil
}

// managed are the objects by which Gardener applies the classes of a type, by their names.
func managed(namespace, typ string) (*unstructured.Unstructured, *corev1.Secret) {
	name := names.Object("extension-runtime", typ, "fairlead")
	mr := &unstructured.Unstructured{Object: map[string]any{}}
	mr.SetGroupVersionKind(resourceKind)
	mr.SetNamespace(namespace)
	mr.SetName(name)
	return mr, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// manifest is a class as a shoot's API server takes it.
func manifest(class *nodev1.RuntimeClass, beta bool) ([]byte, error) {
	if beta {
		old := runtimeclass.ToV1beta1(class)
		old.TypeMeta = metav1.TypeMeta{APIVersion: nodev1beta1.SchemeGroupVersion.String(), Kind: "RuntimeClass"}
		return yaml.Marshal(old)
	}
	class.TypeMeta = metav1.TypeMeta{APIVersion: nodev1.SchemeGroupVersion.String(), Kind: "RuntimeClass"}
	return yaml.Marshal(class)
}

// firstV1 is the first release of Kubernetes with node.k8s.io/v1.
var firstV1 = version.MajorMinor(1, 20)

// shoot is what Gardener tells of the shoot of a namespace, in a Cluster of the same name;
// it is empty where there is none.
func (e *inGardener) shoot(ctx context.Context, namespace string) (map[string]any, error) {
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(clusterKind)
	if err := client.IgnoreNotFound(e.client.Get(ctx, client.ObjectKey{Name: namespace}, cluster)); err != nil {
		return nil, fmt.Errorf("get Cluster %s: %w", namespace, err)
	}
	shoot, _, _ := unstructured.NestedMap(cluster.Object, "spec", "shoot")
	return shoot, nil
}

// beta says whether a shoot's API server has classes in v1beta1 only. One of which nobody
// tells is of today.
func (e *inGardener) beta(ctx context.Context, namespace string) (bool, error) {
	shoot, err := e.shoot(ctx, namespace)
	if err != nil {
		return false, err
	}
	text, _, _ := unstructured.NestedString(shoot, "spec", "kubernetes", "version")
	if text == "" {
		return false, nil
	}
	v, err := version.ParseGeneric(text)
	if err != nil {
		return false, fmt.Errorf("read the version of Kubernetes in Cluster %s: %w", namespace, err)
	}
	return v.LessThan(firstV1), nil
}

func (e *inGardener) secret(ctx context.Context, want *corev1.Secret) error {
	have := &corev1.Secret{}
	err := e.client.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		err = e.client.Create(ctx, want)
	case err == nil && have.DeletionTimestamp != nil:
		return going.Of(have)
	case err == nil && !equality.Semantic.DeepEqual(have.Data, want.Data):
		changed := have.DeepCopy()
		changed.Data = want.Data
		err = e.client.Update(ctx, changed)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// remove takes the entries out again, and waits until Gardener has taken the classes off
// the shoot. What Gardener's machines run it knows itself: it drains and replaces, or
// updates, them.
func (e *inGardener) remove(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error) {
	o, last, err := e.withdraw(ctx, c, typ)
	if err != nil || !last {
		return o, err
	}
	shoot, err := e.shoot(ctx, c.Namespace)
	if err != nil {
		return outcome{}, err
	}
	// Of a shoot that is deleted by force the API server may never answer, and gardenlet
	// takes its ManagedResources away after the ContainerRuntimes.
	text, _, _ := unstructured.NestedString(shoot, "metadata", "annotations", gardener.AnnotationForce)
	if forced, _ := strconv.ParseBool(text); forced {
		return o, nil
	}
	return e.until(ctx, c, typ, "its entries are taken out", o)
}

// until is o once nothing is left by which Gardener applies the classes of a type. Says is
// what is done until then.
func (e *inGardener) until(ctx context.Context, c *gardener.ContainerRuntime, typ, says string, o outcome) (outcome, error) {
	mr, secret := managed(c.Namespace, typ)
	for _, one := range []client.Object{mr, secret} {
		err := e.client.Get(ctx, client.ObjectKeyFromObject(one), one)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return outcome{}, fmt.Errorf("get %s: %w", going.Name(one), err)
		}
		return outcome{progress: 50, says: fmt.Sprintf("%s; %s, which has its classes, is still there%s", says, going.Name(one), going.Held(one)), soon: true}, nil
	}
	return o, nil
}

// leaves is what is said of a migration.
const leaves = "what is on the nodes and in the cluster stays for who takes over"

// migrate has Gardener let go of the classes, which stay in the shoot: its control plane is
// not moved before no ManagedResource is left that applies something there. They are made
// again where the shoot is restored.
func (e *inGardener) migrate(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error) {
	mr, _ := managed(c.Namespace, typ)
	err := e.client.Get(ctx, client.ObjectKeyFromObject(mr), mr)
	if client.IgnoreNotFound(err) != nil {
		return outcome{}, fmt.Errorf("get ManagedResource %s/%s: %w", mr.GetNamespace(), mr.GetName(), err)
	}
	if kept, _, _ := unstructured.NestedBool(mr.Object, "spec", "keepObjects"); err == nil && !kept {
		was := mr.DeepCopy()
		if err := unstructured.SetNestedField(mr.Object, true, "spec", "keepObjects"); err != nil {
			return outcome{}, fmt.Errorf("have ManagedResource %s/%s keep its objects: %w", mr.GetNamespace(), mr.GetName(), err)
		}
		if err := e.client.Patch(ctx, mr, client.MergeFrom(was)); client.IgnoreNotFound(err) != nil {
			return outcome{}, fmt.Errorf("have ManagedResource %s/%s keep its objects: %w", mr.GetNamespace(), mr.GetName(), err)
		}
	}
	if err := e.unmanage(ctx, c.Namespace, typ); err != nil {
		return outcome{}, err
	}
	return e.until(ctx, c, typ, leaves, outcome{done: true, says: leaves})
}

// unmanage has Gardener no longer apply the classes of a type.
func (e *inGardener) unmanage(ctx context.Context, namespace, typ string) error {
	mr, secret := managed(namespace, typ)
	if err := client.IgnoreNotFound(e.client.Delete(ctx, mr)); err != nil {
		return fmt.Errorf("delete ManagedResource %s: %w", mr.GetName(), err)
	}
	if err := client.IgnoreNotFound(e.client.Delete(ctx, secret)); err != nil {
		return fmt.Errorf("delete Secret %s: %w", secret.Name, err)
	}
	return nil
}

// forget does not wait for the shoot.
func (e *inGardener) forget(ctx context.Context, c *gardener.ContainerRuntime, typ string) (outcome, error) {
	o, _, err := e.withdraw(ctx, c, typ)
	return o, err
}

// withdraw takes the entries out and, with the last object of a type, has the classes
// taken away.
func (e *inGardener) withdraw(ctx context.Context, c *gardener.ContainerRuntime, typ string) (o outcome, last bool, err error) {
	handlers, err := e.handlers(ctx, typ)
	if err != nil {
		return outcome{}, false, err
	}
	var all gardener.ContainerRuntimeList
	if err := e.client.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return outcome{}, false, fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	others := slices.DeleteFunc(placed.All(all.Items), func(o gardener.ContainerRuntime) bool {
		return o.UID == c.UID || o.DeletionTimestamp != nil || e.plugins.Canonical(o.Spec.Type) != typ
	})
	// As of a pool that has asked for kata and now asks for kata-containers.
	if slices.ContainsFunc(others, func(o gardener.ContainerRuntime) bool {
		return o.Spec.WorkerPool.Name == c.Spec.WorkerPool.Name && o.Spec.BinaryPath == c.Spec.BinaryPath
	}) {
		return outcome{done: true, says: "its entries are those of another ContainerRuntime of its pool"}, false, nil
	}
	// Whether or not there is a payload: tables of a release are known by their files.
	if _, err := e.put(ctx, c, osc.Entries{Base: osc.Base(c.Spec.BinaryPath, typ), Handlers: handlers}); err != nil {
		return outcome{}, false, err
	}
	if len(others) > 0 {
		return outcome{done: true, says: "its entries are taken out; other pools still have the runtime"}, false, nil
	}
	if err := e.unmanage(ctx, c.Namespace, typ); err != nil {
		return outcome{}, false, err
	}
	return outcome{done: true, says: "its entries and classes are taken out"}, true, nil
}

// handlers are those of the type's payload, if there is one.
func (e *inGardener) handlers(ctx context.Context, typ string) ([]string, error) {
	p := &v1alpha1.RuntimePayload{}
	if err := client.IgnoreNotFound(e.client.Get(ctx, client.ObjectKey{Name: typ}, p)); err != nil {
		return nil, fmt.Errorf("get RuntimePayload %s: %w", typ, err)
	}
	return handlersOf(&task{payload: p}), nil
}
