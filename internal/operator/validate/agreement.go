package validate

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// asked is a RuntimeClass as a pool wants it, and by which of its runtimes.
type asked struct {
	plugin.Class
	runtime int
}

// checkAgreement compares the classes of a pool with those of the others. There is one
// of a name in a cluster, and of two pools that differ the older one decides. A pool
// that is older than another may be changed, or nobody could change both.
func (k Known) checkAgreement(p *v1alpha1.WorkerPool, at *field.Path, r *Result) {
	if k.Payload == nil {
		return
	}
	mine := k.classes(p)
	for i := range k.Pools {
		other := &k.Pools[i]
		if other.Name == p.Name || other.DeletionTimestamp != nil {
			continue
		}
		theirs := k.classes(other)
		for _, name := range slices.Sorted(maps.Keys(mine)) {
			want, has := mine[name], theirs[name]
			if has.Name == "" || equality.Semantic.DeepEqual(want.Overhead, has.Overhead) {
				continue
			}
			where := at.Index(want.runtime).Child("providerConfig")
			if !olderPool(other, p) {
				r.warn("%s: RuntimeClass %s gets the overhead of this pool, and WorkerPool %s wants another one for it; change that pool, too", where, name, other.Name)
				continue
			}
			r.add(field.Forbidden(where, fmt.Sprintf("RuntimeClass %s has the overhead that the older WorkerPool %s gives it, %s, and this pool wants %s; there is one class for both, so give them the same overhead", name, other.Name, plugin.Amounts(has.Overhead), plugin.Amounts(want.Overhead))))
		}
	}
}

// classes are those that a pool wants, by name. What is wrong with it, others say.
func (k Known) classes(p *v1alpha1.WorkerPool) map[string]asked {
	out := map[string]asked{}
	for i, want := range p.Spec.CRI.ContainerRuntimes {
		one := k.Plugins.Lookup(want.Type)
		if one == nil {
			continue
		}
		release := k.Payload(one.Describe().Type)
		if release == nil {
			continue
		}
		var raw []byte
		if want.ProviderConfig != nil {
			raw = want.ProviderConfig.Raw
		}
		settings, faults := one.Configure(raw, &release.Spec.Manifest, nil)
		all, err := plugin.Classes(one.Describe(), &release.Spec.Manifest, settings)
		if len(faults) > 0 || err != nil {
			continue
		}
		for _, c := range plugin.Below(p.Spec.CRI.Name, all, &release.Spec.Manifest) {
			out[c.Name] = asked{c, i}
		}
	}
	return out
}

// olderPool says whether a was there before b. One without a time is about to be made.
func olderPool(a, b *v1alpha1.WorkerPool) bool {
	switch {
	case b.CreationTimestamp.IsZero():
		return true
	case a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}
