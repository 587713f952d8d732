// Package classes keeps the RuntimeClasses of installed runtimes, in the version of
// node.k8s.io that the API server has.
package classes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/going"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/pkg/runtimeclass"
)

// Errors that a user has to do something about.
var (
	// ErrForeign says that somebody else has made a class of the name.
	ErrForeign = errors.New("it was not made by this operator")
	// ErrInUse says that pods have a class that would have to be made anew.
	ErrInUse = errors.New("pods use it")
)

// Keeper writes RuntimeClasses. Beta has it use v1beta1, which API servers have from
// 1.14 to 1.24, where v1 came with 1.20.
type Keeper struct {
	Client client.Client
	Live   client.Reader // of the API server itself
	Beta   bool

	mu   sync.Mutex
	kept map[string][]corev1.Toleration // of classes that go and are made anew, by their names
}

// Wanted is the class of a handler: it selects the nodes that serve it.
func Wanted(typ string, c plugin.Class) *nodev1.RuntimeClass {
	out := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{names.ManagedBy: names.Manager, names.Type: typ}},
		Handler:    c.Handler,
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{names.Handler + c.Handler: typ}},
	}
	if c.Isolation != "" {
		out.Labels[names.Isolation] = string(c.Isolation)
	}
	if len(c.Overhead) > 0 {
		out.Overhead = &nodev1.Overhead{PodFixed: c.Overhead}
	}
	return out
}

// Ours says that this operator has made a class for a type.
func Ours(c *nodev1.RuntimeClass, typ string) bool {
	return c.Labels[names.ManagedBy] == names.Manager && c.Labels[names.Type] == typ
}

// Ensure makes the class, or changes it. A class whose handler is another one is made
// anew if no pod has it. One that is being deleted is waited for: the error is going.Err.
// What an administrator tolerates on a class stays with it in all of this.
func (k *Keeper) Ensure(ctx context.Context, want *nodev1.RuntimeClass) error {
	typ := want.Labels[names.Type]
	have, err := k.get(ctx, want.Name)
	switch {
	case apierrors.IsNotFound(err):
		return k.create(ctx, want)
	case err != nil:
		return wrap("get", want.Name, err)
	case have.DeletionTimestamp != nil:
		if Ours(have, typ) {
			k.remember(have)
		}
		return going.Of(have)
	case !Ours(have, typ):
		return fmt.Errorf("RuntimeClass %s exists, and %w for %s: delete or rename it", want.Name, ErrForeign, typ)
	case have.Handler != want.Handler:
		return k.replace(ctx, have, want)
	}
	changed := have.DeepCopy()
	maps.Copy(changed.Labels, want.Labels)
	changed.Overhead, changed.Scheduling = want.Overhead, merged(have.Scheduling, want.Scheduling)
	if equality.Semantic.DeepEqual(changed, have) {
		return nil
	}
	return wrap("update", want.Name, k.Client.Update(ctx, k.versioned(changed)))
}

// merged keeps tolerations that an administrator has added.
func merged(have, want *nodev1.Scheduling) *nodev1.Scheduling {
	out := want.DeepCopy()
	if have != nil {
		out.Tolerations = have.Tolerations
	}
	return out
}

// replace makes a class of another handler in the place of one that no pod has.
func (k *Keeper) replace(ctx context.Context, have, want *nodev1.RuntimeClass) error {
	users, err := k.Users(ctx, want.Name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("RuntimeClass %s has handler %s and is to have %s, which means to make it anew, and %w: %s", want.Name, have.Handler, want.Handler, ErrInUse, Some(users))
	}
	k.remember(have)
	if err := k.delete(ctx, have); err != nil {
		return err
	}
	return k.create(ctx, want)
}

// remember keeps the tolerations of a class until it is made anew, for which a finalizer
// may have it wait.
func (k *Keeper) remember(c *nodev1.RuntimeClass) {
	if c.Scheduling == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[string][]corev1.Toleration{}
	}
	k.kept[c.Name] = c.Scheduling.Tolerations
}

// create makes a class, with the tolerations of the one that had its name.
func (k *Keeper) create(ctx context.Context, want *nodev1.RuntimeClass) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := want.DeepCopy()
	out.Scheduling = merged(&nodev1.Scheduling{Tolerations: k.kept[want.Name]}, want.Scheduling)
	if err := k.Client.Create(ctx, k.versioned(out)); err != nil {
		return wrap("create", want.Name, err)
	}
	delete(k.kept, want.Name)
	return nil
}

// Remove deletes the classes of a type, also those that a cache has not heard of.
func (k *Keeper) Remove(ctx context.Context, typ string) error {
	all, err := k.All(ctx, typ)
	if err != nil {
		return err
	}
	for i := range all {
		if err := k.delete(ctx, &all[i]); err != nil {
			return err
		}
		k.forget(all[i].Name)
	}
	return nil
}

// forget lets the tolerations go of a class that is not to be made anew.
func (k *Keeper) forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, name)
}

// Prune deletes the classes of a type that are not to be kept and that no pod has. It
// says which are held, and by whom: a pod whose class is gone cannot be made anew.
func (k *Keeper) Prune(ctx context.Context, typ string, keep map[string]bool) (held []string, err error) {
	all, err := k.List(ctx, typ)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b nodev1.RuntimeClass) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		if keep[all[i].Name] {
			continue
		}
		users, err := k.Users(ctx, all[i].Name)
		if err != nil {
			return nil, err
		}
		if len(users) > 0 {
			held = append(held, fmt.Sprintf("%s (%s)", all[i].Name, Some(users)))
			continue
		}
		if err := k.delete(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	return held, nil
}

func (k *Keeper) delete(ctx context.Context, c *nodev1.RuntimeClass) error {
	// What somebody has changed since may be theirs by now.
	err := k.Client.Delete(ctx, k.versioned(c), client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	return wrap("delete", c.Name, client.IgnoreNotFound(err))
}

// List is the classes of a type that this operator has made.
func (k *Keeper) List(ctx context.Context, typ string) ([]nodev1.RuntimeClass, error) {
	return k.list(ctx, k.Client, typ)
}

// All is List as the API server has it, with those that a cache has not heard of.
func (k *Keeper) All(ctx context.Context, typ string) ([]nodev1.RuntimeClass, error) {
	return k.list(ctx, k.Live, typ)
}

// Handlers are those of a type: of its payload, if there is one, and of the classes that
// this operator has made.
func (k *Keeper) Handlers(ctx context.Context, typ string) (map[string]bool, error) {
	out, p := map[string]bool{}, &v1alpha1.RuntimePayload{}
	if err := client.IgnoreNotFound(k.Client.Get(ctx, client.ObjectKey{Name: typ}, p)); err != nil {
		return nil, fmt.Errorf("get RuntimePayload %s: %w", typ, err)
	}
	for i := range p.Spec.Manifest.Handlers {
		out[p.Spec.Manifest.Handlers[i].Name] = true
	}
	ours, err := k.List(ctx, typ)
	for i := range ours {
		out[ours[i].Handler] = true
	}
	return out, err
}

// Others are the names of classes that somebody else has made for handlers of a type. On
// nodes that have it from this operator pods of these run on it, and elsewhere on something
// else of that name.
func (k *Keeper) Others(ctx context.Context, typ string) ([]string, error) {
	handlers, err := k.Handlers(ctx, typ)
	if err != nil {
		return nil, err
	}
	all, err := k.list(ctx, k.Client, "")
	var out []string
	for i := range all {
		if c := &all[i]; handlers[c.Handler] && !Ours(c, typ) {
			out = append(out, c.Name)
		}
	}
	return out, err
}

// list is the classes of a type that this operator has made, and without one all that there
// are.
func (k *Keeper) list(ctx context.Context, from client.Reader, typ string) ([]nodev1.RuntimeClass, error) {
	fits := client.MatchingLabels{}
	if typ != "" {
		fits = client.MatchingLabels{names.ManagedBy: names.Manager, names.Type: typ}
	}
	if !k.Beta {
		var list nodev1.RuntimeClassList
		err := from.List(ctx, &list, fits)
		return list.Items, wrap("list", "of "+typ, err)
	}
	var list nodev1beta1.RuntimeClassList
	if err := from.List(ctx, &list, fits); err != nil {
		return nil, wrap("list", "of "+typ, err)
	}
	var out []nodev1.RuntimeClass
	for i := range list.Items {
		out = append(out, *runtimeclass.FromV1beta1(&list.Items[i]))
	}
	return out, nil
}

// Object is what a watch of classes is about.
func (k *Keeper) Object() client.Object {
	if k.Beta {
		return &nodev1beta1.RuntimeClass{}
	}
	return &nodev1.RuntimeClass{}
}

func (k *Keeper) get(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	if !k.Beta {
		c := &nodev1.RuntimeClass{}
		return c, k.Client.Get(ctx, client.ObjectKey{Name: name}, c)
	}
	c := &nodev1beta1.RuntimeClass{}
	if err := k.Client.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
		return nil, err
	}
	return runtimeclass.FromV1beta1(c), nil
}

func (k *Keeper) versioned(c *nodev1.RuntimeClass) client.Object {
	if k.Beta {
		return runtimeclass.ToV1beta1(c)
	}
	return c.DeepCopy()
}

// HandlerOf is the handler of a class of either version; "" of anything else.
func HandlerOf(o client.Object) string {
	switch c := o.(type) {
	case *nodev1.RuntimeClass:
		return c.Handler
	case *nodev1beta1.RuntimeClass:
		return c.Handler
	}
	return ""
}

// Foreign says whose a class is that has not this operator's labels; "" for none.
func (k *Keeper) Foreign(ctx context.Context, name, typ string) (string, error) {
	have, err := k.get(ctx, name)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil || Ours(have, typ) {
		return "", wrap("get", name, err)
	}
	return "somebody else's (handler " + have.Handler + ")", nil
}

// pageSize bounds a part of a list of pods.
const pageSize = 500

// Users are the pods that have one of some classes and have not ended, as the API
// server has them now.
func (k *Keeper) Users(ctx context.Context, classes ...string) ([]string, error) {
	return k.users(ctx, func(p *corev1.Pod) bool { return has(p, classes) })
}

// UsersOn is Users on one node.
func (k *Keeper) UsersOn(ctx context.Context, node string, classes []string) ([]string, error) {
	if len(classes) == 0 {
		return nil, nil
	}
	return k.users(ctx, func(p *corev1.Pod) bool { return has(p, classes) }, client.MatchingFields{"spec.nodeName": node})
}

// UsersOf is Users of a type: pods that have one of the classes that this operator has
// made, wherever they are, and those of classes of others on some nodes.
func (k *Keeper) UsersOf(ctx context.Context, typ string, nodes map[string]bool) ([]string, error) {
	all, err := k.All(ctx, typ)
	if err != nil {
		return nil, err
	}
	var ours []string
	for i := range all {
		ours = append(ours, all[i].Name)
	}
	others, err := k.Others(ctx, typ)
	if err != nil || len(ours)+len(others) == 0 {
		return nil, err
	}
	return k.users(ctx, func(p *corev1.Pod) bool { return has(p, ours) || nodes[p.Spec.NodeName] && has(p, others) })
}

func has(p *corev1.Pod, classes []string) bool {
	return p.Spec.RuntimeClassName != nil && slices.Contains(classes, *p.Spec.RuntimeClassName)
}

// users are the pods that fit and have not ended.
func (k *Keeper) users(ctx context.Context, fits func(*corev1.Pod) bool, more ...client.ListOption) ([]string, error) {
	var out []string
	for next := ""; ; {
		var page corev1.PodList
		if err := k.Live.List(ctx, &page, append(more, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return nil, fmt.Errorf("list pods that use a RuntimeClass: %w", err)
		}
		for i := range page.Items {
			p := &page.Items[i]
			ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
			if fits(p) && !ended {
				out = append(out, p.Namespace+"/"+p.Name)
			}
		}
		if next = page.Continue; next == "" {
			return out, nil
		}
	}
}

// Some is a few names of many.
func Some(all []string) string {
	const most = 3
	text := ""
	for i, name := range all {
		if i == most {
			return fmt.Sprintf("%s and %d more", text, len(all)-most)
		}
		if i > 0 {
			text += ", "
		}
		text += name
	}
	return text
}

func wrap(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s RuntimeClass %s: %w", verb, name, err)
}
