package runtimes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/validate"
	"fairlead.run/internal/webhook/review"
)

// Cluster is what is asked about the cluster. What is not there is nil or empty.
type Cluster interface {
	Pools(ctx context.Context) ([]v1alpha1.WorkerPool, error)
	Payload(ctx context.Context, typ string) (*v1alpha1.RuntimePayload, error)
	Runtimes(ctx context.Context, namespace string) ([]gardener.ContainerRuntime, error)
	Class(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
	// Users are pods that have a class and have not ended.
	Users(class string) []string
	// Nodes are those of the cluster, with their labels, their systems and the versions of their
	// kubelets, and Version is that of the API server.
	Nodes() []*corev1.Node
	Version(ctx context.Context) (string, error)
}

// Garden is what is asked about a landscape of Gardener's.
type Garden interface {
	// Profile is what a profile says, or nil if there is none. It may be what was read
	// a moment ago, and then says so; fresh is what there is now.
	Profile(ctx context.Context, ref validate.ProfileRef, fresh bool) (p *validate.CloudProfile, remembered bool, err error)
}

// Rules answer reviews.
type Rules struct {
	Plugins plugin.Set
	// Cluster is nil where only shoots are looked at, as in a garden cluster, and
	// Garden is nil elsewhere.
	Cluster Cluster
	Garden  Garden
	// Capability is what tells in a garden which machines can run virtual machines.
	Capability validate.Capability
}

var admitted = review.Answer{}

// kind is what a path is about.
type kind struct{ group, version, name string }

// check says whether a review is about it; another one is a mistake in the
// configuration, and no refusal.
func (k kind) check(r *review.Request) error {
	if r.Kind.Group != k.group || r.Kind.Version != k.version || r.Kind.Kind != k.name {
		return fmt.Errorf("answer for %s: this path is for %s/%s %s; mend the rules of the webhook configuration: %w", r.Kind.Kind, k.group, k.version, k.name, errdefs.ErrInvalidArgument)
	}
	return nil
}

func changes(r *review.Request) bool {
	return (r.Operation == review.Create || r.Operation == review.Update) && r.SubResource == ""
}

// answer is that of some rules.
func answer(r validate.Result) review.Answer {
	if len(r.Faults) > 0 {
		return review.Answer{Refused: review.Faults(r.Faults), Warnings: r.Warnings}
	}
	return review.Answer{Warnings: r.Warnings}
}

// two reads an object and the one before it, if there was one.
func two[T any](r *review.Request) (now, old *T, err error) {
	now = new(T)
	if err := review.Into(r.Object, "object", now); err != nil {
		return nil, nil, err
	}
	if r.Operation != review.Update {
		return now, nil, nil
	}
	old = new(T)
	return now, old, review.Into(r.OldObject, "oldObject", old)
}

// Pools answers for WorkerPools.
func (r *Rules) Pools(ctx context.Context, q *review.Request) (review.Answer, error) {
	if err := (kind{v1alpha1.SchemeGroupVersion.Group, v1alpha1.SchemeGroupVersion.Version, "WorkerPool"}).check(q); err != nil || !changes(q) {
		return admitted, err
	}
	p, old, err := two[v1alpha1.WorkerPool](q)
	if err != nil || p.DeletionTimestamp != nil {
		return admitted, err
	}
	known, err := r.known(ctx, p)
	if err != nil {
		return admitted, err
	}
	if old == nil {
		return answer(known.Pool(p)), nil
	}
	return answer(fresh(known.PoolUpdate(p, old), known.Pool(old))), nil
}

// fresh leaves out what was wrong before: it came when nobody looked, or by what has
// changed around it, and to refuse every change would not mend it.
func fresh(now, before validate.Result) validate.Result {
	had := map[string]bool{}
	for _, f := range before.Faults {
		had[f.Error()] = true
	}
	now.Faults = slices.DeleteFunc(now.Faults, func(f *field.Error) bool { return had[f.Error()] })
	return now
}

// known asks the cluster what the rules want to know about a pool.
func (r *Rules) known(ctx context.Context, p *v1alpha1.WorkerPool) (validate.Known, error) {
	pools, err := r.Cluster.Pools(ctx)
	if err != nil {
		return validate.Known{}, err
	}
	k, processors := validate.Known{Plugins: r.Plugins, Pools: pools}, validate.Processors{}
	for _, n := range r.Cluster.Nodes() {
		processors.Look(p, n)
	}
	k.Virtual = processors.Virtual()
	if p.Spec.KubernetesVersion == "" {
		k.Kubelet, k.Unknown = r.kubelet(ctx, p)
	}
	payloads, owners := map[string]*v1alpha1.RuntimePayload{}, map[string]string{}
	var failed []error
	for _, want := range p.Spec.CRI.ContainerRuntimes {
		one := r.Plugins.Lookup(want.Type)
		if one == nil {
			continue
		}
		d := one.Describe()
		if payloads[d.Type], err = r.Cluster.Payload(ctx, d.Type); err != nil {
			failed = append(failed, err)
			continue
		}
		if payloads[d.Type] == nil {
			continue
		}
		all, _ := plugin.Classes(d, &payloads[d.Type].Spec.Manifest, plugin.Settings{}) // what is wrong there the rules say
		for _, c := range all {
			class, err := r.Cluster.Class(ctx, c.Name)
			failed = append(failed, err)
			if class != nil && class.Labels[names.ManagedBy] != names.Manager {
				owners[c.Name] = "somebody else's (handler " + class.Handler + ")"
			}
		}
	}
	k.Payload = func(typ string) *v1alpha1.RuntimePayload { return payloads[typ] }
	k.Foreign = func(class string) string { return owners[class] }
	return k, errors.Join(failed...)
}

// kubelet is the version of the oldest kubelet of a pool. One without nodes can only get
// kubelets that are not newer than the API server, which may be too old for all of them.
func (r *Rules) kubelet(ctx context.Context, p *v1alpha1.WorkerPool) (is, unknown string) {
	for _, n := range r.Cluster.Nodes() {
		is = validate.Older(is, p, n)
	}
	if is != "" {
		return is, ""
	}
	is, err := r.Cluster.Version(ctx)
	if err != nil {
		return "", fmt.Sprintf("the pool has no nodes that tell, and the version of the API server is not known (%v)", err)
	}
	return is, ""
}

// Payloads answers for RuntimePayloads.
func (r *Rules) Payloads(_ context.Context, q *review.Request) (review.Answer, error) {
	if err := (kind{v1alpha1.SchemeGroupVersion.Group, v1alpha1.SchemeGroupVersion.Version, "RuntimePayload"}).check(q); err != nil || !changes(q) {
		return admitted, err
	}
	p, _, err := two[v1alpha1.RuntimePayload](q)
	if err != nil || p.DeletionTimestamp != nil {
		return admitted, err
	}
	return answer(validate.Known{Plugins: r.Plugins}.Release(p)), nil
}

// Runtimes answers for ContainerRuntimes.
func (r *Rules) Runtimes(ctx context.Context, q *review.Request) (review.Answer, error) {
	if err := (kind{gardener.SchemeGroupVersion.Group, gardener.SchemeGroupVersion.Version, "ContainerRuntime"}).check(q); err != nil || !changes(q) {
		return admitted, err
	}
	c, old, err := two[gardener.ContainerRuntime](q)
	if err != nil {
		return admitted, err
	}
	known := validate.Known{Plugins: r.Plugins}
	if validate.InUsr(c.Spec.BinaryPath) && c.DeletionTimestamp == nil {
		known.Nodes = r.Cluster.Nodes()
		if known.Pools, err = r.Cluster.Pools(ctx); err != nil {
			return admitted, err
		}
	}
	if old != nil {
		return answer(fresh(known.RuntimeUpdate(c, old), known.Runtime(old))), nil
	}
	result := known.Runtime(c)
	all, err := r.Cluster.Runtimes(ctx, q.Namespace)
	if err != nil {
		return admitted, err
	}
	c.Namespace = q.Namespace
	if twin := known.RuntimeTwin(c, all); twin != nil {
		result.Faults = append(result.Faults, twin)
	}
	return answer(result), nil
}

// Shoots answers for Gardener's shoots.
func (r *Rules) Shoots(ctx context.Context, q *review.Request) (review.Answer, error) {
	if err := (kind{"core.gardener.cloud", "v1beta1", "Shoot"}).check(q); err != nil || !changes(q) {
		return admitted, err
	}
	s, old, err := two[validate.Shoot](q)
	if err != nil {
		return admitted, err
	}
	ref := s.Profile(q.Namespace)
	if r.Garden == nil || ref.Name == "" || !s.AsksProfile(old) {
		return answer(r.shoot(s, old, nil)), nil
	}
	// Nobody is refused by what a profile said a moment ago: it may just have been changed
	// for this shoot.
	p, remembered, err := r.Garden.Profile(ctx, ref, false)
	if err == nil && remembered && len(r.onProfile(s, old, ref, p).Faults) > 0 {
		p, _, err = r.Garden.Profile(ctx, ref, true)
	}
	if err == nil {
		return answer(r.onProfile(s, old, ref, p)), nil
	}
	result := r.shoot(s, old, nil)
	result.Faults = slices.DeleteFunc(result.Faults, validate.OfMachine)
	if len(result.Faults) == 0 {
		return admitted, err
	}
	return answer(result), nil // it is wrong whatever the profile says
}

// shoot looks at a shoot by itself, and by what a profile states of machines; nil is none.
func (r *Rules) shoot(s, old *validate.Shoot, p *validate.CloudProfile) validate.Result {
	known := validate.Known{Plugins: r.Plugins, Profile: p, Capability: r.Capability}
	if old != nil {
		return known.ShootUpdate(s, old)
	}
	return known.Shoot(s)
}

// onProfile looks at a shoot by itself, and holds it against its profile.
func (r *Rules) onProfile(s, old *validate.Shoot, ref validate.ProfileRef, p *validate.CloudProfile) validate.Result {
	result, more := r.shoot(s, old, p), validate.ShootOnProfile(s, old, ref, p)
	result.Faults, result.Warnings = append(result.Faults, more.Faults...), append(result.Warnings, more.Warnings...)
	return result
}

// ClassDeletions answers for the deletion of RuntimeClasses that the operator has
// made: a pod whose class has gone cannot be made anew by its controller.
func (r *Rules) ClassDeletions(_ context.Context, q *review.Request) (review.Answer, error) {
	if err := (kind{nodev1.GroupName, "v1", "RuntimeClass"}).check(q); err != nil || q.Operation != review.Delete {
		return admitted, err
	}
	class := &nodev1.RuntimeClass{}
	if err := review.Into(q.OldObject, "oldObject", class); err != nil {
		return admitted, err
	}
	if class.Labels[names.ManagedBy] != names.Manager {
		return admitted, nil
	}
	users := r.Cluster.Users(class.Name)
	if len(users) == 0 {
		return admitted, nil
	}
	const most = 3
	shown := users[:min(most, len(users))]
	text := fmt.Sprintf("%d pods use it, and it goes by itself with the last ContainerRuntime of its type: %v; delete them, or have them use another class", len(users), shown)
	return review.Answer{Refused: review.Faults{field.Forbidden(field.NewPath("metadata", "name"), text)}}, nil
}
