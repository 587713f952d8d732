package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.run/internal/cli/pick"
	"fairlead.run/internal/cli/show"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/inventory"
)

// targetHelp is what a target may be, for the help of commands.
const targetHelp = "POD is a name, namespace/name, or the start of an id. TYPE/NAME is one of the pods of what fairlead up keeps,\n" +
	"such as deploy/web, ds/agent or job/once: the one that kubectl takes. A pod in a namespace that is called like a\n" +
	"type comes first, and pod/NAME is a pod."

// target is a pod as a user names it, or what has pods.
type target struct{ namespace, ref string }

// add adds the flag for the namespace, which is otherwise any.
func (t *target) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.namespace, "namespace", "n", "", "namespace of the pod, where the name does not say it (default any)")
}

// read takes what the target is meant to be: a kind of object, and its name. A pod whose
// namespace is called like a kind is meant as long as there is one.
func (t target) read(pods []inventory.Pod) (show.Kind, string) {
	is, _ := show.Find("pod")
	before, after, both := strings.Cut(t.ref, "/")
	if !both || slices.ContainsFunc(pods, func(p inventory.Pod) bool { return t.ref == p.Namespace+"/"+p.Name }) {
		return is, t.ref
	}
	if k, err := show.Find(before); err == nil {
		return k, after
	}
	return is, t.ref
}

// podOf finds the pod that is meant; of several that belong to an object it is the best one
// by the rule.
func (a *app) podOf(ctx context.Context, s *session, t target, better pick.Rule) (*inventory.Pod, error) {
	pods, err := inventory.List(ctx, s.Runtime)
	if err != nil {
		return nil, err
	}
	return a.podAmong(ctx, pods, t, better)
}

func (a *app) podAmong(ctx context.Context, pods []inventory.Pod, t target, better pick.Rule) (*inventory.Pod, error) {
	if t.namespace != "" {
		pods = slices.DeleteFunc(pods, func(p inventory.Pod) bool { return p.Namespace != t.namespace })
	}
	kind, name := t.read(pods)
	if kind.Name != "Pod" {
		best, err := a.bestOf(ctx, selection{Kind: kind, namespace: t.namespace, name: name}, better)
		if err != nil {
			return nil, err
		}
		pods = slices.DeleteFunc(pods, func(p inventory.Pod) bool { return p.UID != string(best.UID) })
		name = best.Namespace + "/" + best.Name
	}
	p, err := inventory.Find(pods, name)
	if err != nil {
		return nil, a.unstarted(ctx, target{t.namespace, name}, "", err)
	}
	return p, nil
}

// bestOf picks one of the pods of an object that fairlead up keeps.
func (a *app) bestOf(ctx context.Context, of selection, better pick.Rule) (*corev1.Pod, error) {
	c, err := a.machine()
	if err != nil {
		return nil, err
	}
	groups, missing, err := c.find(ctx, []selection{of})
	if err := errors.Join(err, missing); err != nil {
		return nil, err
	}
	var all []string
	for _, o := range groups[0].list {
		all = append(all, of.Singular()+"/"+o.GetNamespace()+"/"+o.GetName())
	}
	if len(all) > 1 {
		return nil, fmt.Errorf("%s/%s may be any of %s; say which, or its namespace with -n: %w", of.Singular(), of.name, strings.Join(all, ", "), errdefs.ErrInvalidArgument)
	}
	pods, err := c.podsOf(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	pods, err = pick.Of(groups[0].list[0], pods)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", all[0], err)
	case len(pods) == 0:
		return nil, fmt.Errorf("%s has no pods at present: %w", all[0], errdefs.ErrNotFound)
	}
	best := pick.Best(pods, better)
	if len(pods) > 1 {
		a.note("%s has %d pods; this is pod %s", all[0], len(pods), podName(best.Namespace, best.Name))
	}
	return best, nil
}

// podsWith finds the pods with such labels, the latest sandbox of each.
func podsWith(ctx context.Context, s *session, namespace, selector string) ([]*inventory.Pod, error) {
	wanted, err := labels.Parse(selector)
	if err != nil {
		return nil, usageError{fmt.Errorf("-l %q is no selector, such as app=web,tier!=back: %w", selector, err)}
	}
	pods, err := inventory.List(ctx, s.Runtime)
	if err != nil {
		return nil, err
	}
	found := matching(pods, namespace, wanted)
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no pod with labels that fit %s: %w", wanted, errdefs.ErrNotFound)
	}
	return found, nil
}

func matching(pods []inventory.Pod, namespace string, wanted labels.Selector) (out []*inventory.Pod) {
	for i := range pods {
		p := &pods[i]
		if namespace != "" && namespace != p.Namespace || !wanted.Matches(labels.Set(p.Labels)) {
			continue
		}
		before := slices.IndexFunc(out, func(o *inventory.Pod) bool { return o.UID == p.UID })
		switch {
		case before < 0:
			out = append(out, p)
		case p.CreatedAt.After(out[before].CreatedAt):
			out[before] = p
		}
	}
	return out
}
