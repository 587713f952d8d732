package containerruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/osc"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugin"
)

// Admission has the entries of a pool's runtimes in an OperatingSystemConfig before it is
// stored: gardenlet writes it without them. It refuses nothing and has no effect but that,
// as the controllers put in afterwards what is missing.
type Admission struct {
	client  client.Client
	plugins plugin.Set
}

// NewAdmission is one for all types.
func NewAdmission(c client.Client, set plugin.Set) *Admission { return &Admission{c, set} }

// Handle answers for an OperatingSystemConfig that is written.
func (a *Admission) Handle(ctx context.Context, r admission.Request) admission.Response {
	now, before := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := now.UnmarshalJSON(r.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read an OperatingSystemConfig: %w", err))
	}
	if len(r.OldObject.Raw) > 0 {
		if err := before.UnmarshalJSON(r.OldObject.Raw); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the OperatingSystemConfig before: %w", err))
		}
	}
	// What takes an order or a finalizer off changes nothing for machines.
	if !followed(now) || equality.Semantic.DeepEqual(now.Object["spec"], before.Object["spec"]) {
		return admission.Allowed("")
	}
	if err := a.put(ctx, r.Namespace, now); err != nil {
		log.FromContext(ctx).Error(err, "an OperatingSystemConfig is written without entries", "namespace", r.Namespace, "name", r.Name)
		return admission.Allowed("")
	}
	text, err := json.Marshal(now.Object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("write an OperatingSystemConfig: %w", err))
	}
	return admission.PatchResponseFromRaw(r.Object.Raw, text)
}

// put has the entries of all runtimes of the pool in an object.
func (a *Admission) put(ctx context.Context, namespace string, into *unstructured.Unstructured) error {
	var all gardener.ContainerRuntimeList
	if err := a.client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	// An object that is written anew has its entries in the same order each time.
	slices.SortFunc(all.Items, func(a, b gardener.ContainerRuntime) int { return strings.Compare(a.Name, b.Name) })
	for i := range all.Items {
		c := placed.As(&all.Items[i])
		p := a.plugins.Lookup(c.Spec.Type)
		if v := Decide(c); p == nil || !mine(c.Spec.Class) || c.Spec.WorkerPool.Name != into.GetLabels()[gardener.LabelPool] || v != Reconcile && v != Restore {
			continue
		}
		had := remembered(c)[into.GetName()]
		with, err := a.entries(ctx, c, p)
		if err != nil {
			log.FromContext(ctx).Info("an OperatingSystemConfig gets the entries that it had", "containerRuntime", c.Name, "namespace", c.Namespace, "error", err.Error())
			with.Files, with.Plugins, with.Base = had.Files, had.Plugins, osc.Base(c.Spec.BinaryPath, p.Describe().Type)
		}
		if len(with.Files) == 0 {
			continue
		}
		osc.Recall(into.Object, with, had)
		if err := osc.Put(into.Object, with); err != nil {
			return err // machines have no containerd
		}
	}
	osc.Sweep(into.Object) // also of runtimes that are gone
	return nil
}

// entries are what the controller of the type would put in now.
func (a *Admission) entries(ctx context.Context, c *gardener.ContainerRuntime, p plugin.Plugin) (osc.Entries, error) {
	e := &inGardener{client: a.client, plugins: a.plugins}
	r := &Reconciler{Client: a.client, Plugin: p, Plugins: a.plugins, Now: time.Now, engine: e}
	t, err := r.task(ctx, c)
	if err != nil {
		return osc.Entries{}, err
	}
	return e.entries(ctx, t)
}
