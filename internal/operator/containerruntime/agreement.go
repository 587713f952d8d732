package containerruntime

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/nodes"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugin"
)

// claim is the classes that an object wants there to be.
type claim struct {
	by      string // for people
	classes []plugin.Class
}

// agreement is the classes of a type. There is one of a name for all pools.
type agreement struct {
	classes []plugin.Class
	// lost is what the object wanted and does not get, as an older one wants it
	// otherwise.
	lost []string
	// unsure says that what some object wants cannot be told, so that no class is known
	// to be nobody's.
	unsure bool
	// asked is the name by which the oldest object asks for the type, and asker that one.
	asked, asker string
}

// agree has of two claims to a class the first one count. Mine is who is told.
func agree(claims []claim, mine string) agreement {
	var out agreement
	owner := map[string]string{}
	for _, c := range claims {
		for _, want := range c.classes {
			at := slices.IndexFunc(out.classes, func(o plugin.Class) bool { return o.Name == want.Name })
			if at < 0 {
				out.classes, owner[want.Name] = append(out.classes, want), c.by
				continue
			}
			if has := out.classes[at]; c.by == mine && !equality.Semantic.DeepEqual(has.Overhead, want.Overhead) {
				out.lost = append(out.lost, fmt.Sprintf("RuntimeClass %s has the overhead that the older %s gives it, %s, and not %s: there is one class for both, so give them the same overhead in their providerConfig",
					want.Name, owner[want.Name], plugin.Amounts(has.Overhead), plugin.Amounts(want.Overhead)))
			}
		}
	}
	slices.SortFunc(out.classes, func(a, b plugin.Class) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// agreed gathers what all objects of the type want, the oldest pool first.
func (r *Reconciler) agreed(ctx context.Context, t *task, pools map[string]*v1alpha1.WorkerPool) (agreement, error) {
	var list gardener.ContainerRuntimeList
	if err := r.Client.List(ctx, &list, client.InNamespace(t.object.Namespace)); err != nil {
		return agreement{}, fmt.Errorf("list ContainerRuntimes: %w", err)
	}
	all := slices.DeleteFunc(placed.All(list.Items), func(c gardener.ContainerRuntime) bool {
		accepted := c.UID == t.object.UID || slices.Contains(c.Finalizers, gardener.Finalizer)
		return !accepted || c.DeletionTimestamp != nil || !mine(c.Spec.Class) || r.Plugins.Canonical(c.Spec.Type) != t.about.Type
	})
	slices.SortFunc(all, func(a, b gardener.ContainerRuntime) int { return nodes.Older(aged(a, pools), aged(b, pools)) })
	var claims []claim
	seen, unsure := map[string]bool{}, false
	for i := range all {
		c := &all[i]
		if seen[c.Spec.WorkerPool.Name] {
			continue // a twin, which is refused
		}
		seen[c.Spec.WorkerPool.Name] = true
		wants, err := r.wants(c, t, pools[c.Spec.WorkerPool.Name])
		if err != nil {
			unsure = true // its own reconciliation says what is wrong with it
			continue
		}
		claims = append(claims, claim{name(c), wants})
	}
	out := agree(claims, name(t.object))
	out.unsure = unsure
	if len(all) > 0 {
		out.asked, out.asker = all[0].Spec.Type, name(&all[0])
	}
	return out, nil
}

func name(c *gardener.ContainerRuntime) string {
	return "ContainerRuntime " + c.Namespace + "/" + c.Name
}

// aged is an object as old as its pool: one that is made anew for a pool loses nothing.
func aged(c gardener.ContainerRuntime, pools map[string]*v1alpha1.WorkerPool) gardener.ContainerRuntime {
	if p := pools[c.Spec.WorkerPool.Name]; p != nil {
		c.CreationTimestamp, c.Name = p.CreationTimestamp, p.Name
	}
	return c
}

// wants are the classes of one object, of the handlers that its nodes can have.
func (r *Reconciler) wants(c *gardener.ContainerRuntime, t *task, pool *v1alpha1.WorkerPool) ([]plugin.Class, error) {
	manifest := &t.payload.Spec.Manifest
	settings, faults := r.Plugin.Configure(raw(c), manifest, providerConfig)
	if len(faults) > 0 {
		return nil, faults.ToAggregate()
	}
	all, err := plugin.Classes(t.about, manifest, settings)
	if err != nil {
		return nil, err
	}
	return plugin.Below(criOf(pool), all, manifest), nil
}

func raw(c *gardener.ContainerRuntime) []byte {
	if c.Spec.ProviderConfig == nil {
		return nil
	}
	return c.Spec.ProviderConfig.Raw
}

// criOf is the CRI runtime of a pool; what is not said is what nearly all nodes have,
// and what Gardener's have.
func criOf(pool *v1alpha1.WorkerPool) v1alpha1.CRIName {
	if pool == nil {
		return v1alpha1.CRIContainerd
	}
	return pool.Spec.CRI.Name
}

// condition is how it stands with the classes. Held are those that are nobody's any
// more and that pods have.
func (a *agreement) condition(held []string) gardener.Condition {
	c := gardener.Condition{Type: "ClassesAgreed", Status: "True", Reason: "Agreed", Message: "the RuntimeClasses are as they are wanted"}
	switch {
	case len(a.lost) > 0:
		c.Status, c.Reason, c.Message = "False", "Overruled", strings.Join(a.lost, "; ")
	case len(held) > 0:
		c.Status, c.Reason, c.Message = "False", "InUse", "no pool has these handlers any more, and their RuntimeClasses go when no pod has them: "+strings.Join(held, "; ")
	}
	return c
}

// overruled makes an error of what is as far as it can be, if an older object has got
// a class as it wants it: only a user can settle that.
func overruled(o outcome, a agreement) (outcome, error) {
	if len(a.lost) == 0 || !o.done {
		return o, nil
	}
	return o, misconfigured(fmt.Errorf("%s, but %s", o.says, strings.Join(a.lost, "; ")))
}
