package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cli/show"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/machine"
	"fairlead.run/internal/node/manifest/fields"
)

func (a *app) getCommand() *cobra.Command {
	var namespace, selector string
	var watch bool
	cmd := &cobra.Command{
		Use:   "get {KIND[,KIND...] [NAME...] | KIND/NAME... | all | problems}",
		Short: "Show the objects that fairlead up keeps, or what is wrong with their manifests",
		Long: "Show the objects of the manifests that fairlead up keeps and how they are, or what is wrong with manifests.\n" +
			"KIND is a kind of object, several of it, or a short name: pods, po, nodes, deploy, ds, jobs, cj, cm, secrets,\n" +
			"pvc, runtimeclasses and so on; all is pods, Services and workloads. NAME may be namespace/name. Secrets are\n" +
			"shown without their values.",
		Example: "  fairlead get pods -o wide\n  fairlead get pods -l app=web -w\n  fairlead get deploy/web cm/settings -o yaml\n" +
			"  fairlead get pods -o jsonpath='{.items[*].status.podIP}'\n  fairlead get problems",
		RunE: func(cmd *cobra.Command, list []string) error {
			if err := a.checkListing(); err != nil {
				return err
			}
			if len(list) == 1 && list[0] == "problems" {
				return a.getProblems(cmd.Context())
			}
			wanted, err := selections(cmd, list, namespace)
			if err != nil {
				return err
			}
			if selector != "" {
				if wanted, err = narrowed(wanted, selector); err != nil {
					return usageError{err}
				}
			}
			if watch {
				return a.watchObjects(cmd.Context(), wanted)
			}
			return a.getObjects(cmd.Context(), wanted)
		},
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.Flags().StringVarP(&a.output, "output", "o", "table", "table, wide, name, json, yaml or jsonpath=TEMPLATE")
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "only those with such labels, as app=web,tier!=back")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with what changes")
	anyNamespaceFlags(cmd, &namespace)
	return cmd
}

// checkListing refuses a wrong -o of a list of objects.
func (a *app) checkListing() error {
	if a.output == "wide" || a.output == "name" {
		return nil
	}
	if text, ok := strings.CutPrefix(a.output, "jsonpath"); ok {
		_, err := readTemplate(text)
		return err
	}
	if err := a.checkOutput(); err != nil {
		return usageError{fmt.Errorf("-o %s is not one of table, wide, name, json, yaml, jsonpath=TEMPLATE", a.output)}
	}
	return nil
}

// selection is objects of a kind: those with that name, or all.
type selection struct {
	show.Kind
	namespace string // empty for all
	name      string
	labels    labels.Selector // nil for any
}

// isAbout says whether an event is about one of them.
func (s selection) isAbout(o corev1.ObjectReference) bool {
	return o.Kind == s.Name && s.has(&metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name})
}

func (s selection) has(o metav1.Object) bool {
	if s.labels != nil && !s.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	if s.namespace != "" && !s.Unspaced && s.namespace != o.GetNamespace() {
		return false
	}
	return s.name == "" || s.name == o.GetName() || s.namespace == "" && s.name == o.GetNamespace()+"/"+o.GetName()
}

// selections reads kinds and names, or kinds with their names.
func selections(cmd *cobra.Command, list []string, namespace string) ([]selection, error) {
	if len(list) == 0 {
		return nil, usageError{fmt.Errorf("KIND is missing: want %s; see %s --help", usage(cmd), cmd.CommandPath())}
	}
	var out []selection
	add := func(kind, name string) error {
		k, err := show.Find(kind)
		if err != nil {
			return usageError{err}
		}
		out = append(out, selection{Kind: k, namespace: namespace, name: name})
		return nil
	}
	if strings.Contains(list[0], "/") {
		for _, text := range list {
			kind, name, _ := strings.Cut(text, "/")
			if name == "" {
				return nil, usageError{fmt.Errorf("%q is no KIND/NAME", text)}
			}
			if err := add(kind, name); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	kinds := strings.Split(list[0], ",")
	if list[0] == "all" {
		kinds = show.All
	}
	for _, kind := range kinds {
		for _, name := range list[min(1, len(list)-1):] {
			if len(list) == 1 {
				name = ""
			}
			if err := add(kind, name); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// narrowed takes those with labels that fit; names choose already.
func narrowed(list []selection, selector string) ([]selection, error) {
	fit, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("-l %q is no selector, such as app=web,tier!=back: %w", selector, err)
	}
	for i := range list {
		if list[i].name != "" {
			return nil, fmt.Errorf("-l %s and a name choose both; give one of them", selector)
		}
		list[i].labels = fit
	}
	return list, nil
}

// objects asks for all objects of a kind.
func (c *machineClient) objects(ctx context.Context, k show.Kind) ([]metav1.Object, error) {
	var list struct{ Items []json.RawMessage }
	if err := c.get(ctx, http.MethodGet, "/objects/"+url.PathEscape(k.Name), nil, &list); err != nil {
		return nil, err
	}
	out := make([]metav1.Object, len(list.Items))
	for i, text := range list.Items {
		out[i] = k.New()
		if err := json.Unmarshal(text, out[i]); err != nil {
			return nil, fmt.Errorf("read a %s: %w", k.Name, err)
		}
	}
	return out, nil
}

// whys asks what keeps pods from being ready.
func (c *machineClient) whys(ctx context.Context) (map[types.UID]string, error) {
	out := map[types.UID]string{}
	return out, c.get(ctx, http.MethodGet, "/why", nil, &out)
}

// group is what was found of a kind.
type group struct {
	show.Kind
	list []metav1.Object
}

// find finds what is wanted, by kind, and says what is not there.
func (c *machineClient) find(ctx context.Context, wanted []selection) (out []group, missing, err error) {
	var lost []error
	all := map[string][]metav1.Object{}
	for _, s := range wanted {
		if _, asked := all[s.Name]; !asked {
			if all[s.Name], err = c.objects(ctx, s.Kind); err != nil {
				return nil, nil, err
			}
			out = append(out, group{Kind: s.Kind})
		}
		i := slices.IndexFunc(out, func(g group) bool { return g.Name == s.Name })
		had := len(out[i].list)
		for _, o := range all[s.Name] {
			if s.has(o) {
				out[i].list = append(out[i].list, o)
			}
		}
		if s.name != "" && len(out[i].list) == had {
			lost = append(lost, noObject(s, all[s.Name]))
		}
	}
	return out, errors.Join(lost...), nil
}

func noObject(s selection, all []metav1.Object) error {
	var names []string
	for _, o := range all {
		names = append(names, show.Name(o.GetNamespace(), o.GetName()))
	}
	text := fmt.Sprintf("fairlead up keeps no %s %s", s.Singular(), s.name)
	if s.namespace != "" && !s.Unspaced {
		text += " in namespace " + s.namespace
	}
	if near := fields.Nearest(s.name, names); near != "" {
		text += "; did you mean " + near + "?"
	}
	return fmt.Errorf("%s; see: fairlead get %s: %w", text, s.Plural(), errdefs.ErrNotFound)
}

// getObjects shows what there is also when something is not there.
func (a *app) getObjects(ctx context.Context, wanted []selection) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	groups, missing, err := c.find(ctx, wanted)
	if err != nil {
		return err
	}
	if len(groups) == 1 && len(groups[0].list) == 0 && missing != nil {
		return missing
	}
	one := len(wanted) == 1 && wanted[0].name != ""
	switch a.output {
	case "json", "yaml":
		return errors.Join(a.print(objectsOf(groups, one), nil), missing)
	case "name":
		for _, g := range groups {
			for _, o := range g.list {
				_, _ = fmt.Fprintf(a.out, "%s/%s\n", g.Singular(), show.Name(o.GetNamespace(), o.GetName()))
			}
		}
		return missing
	}
	if text, ok := strings.CutPrefix(a.output, "jsonpath"); ok {
		return errors.Join(a.printTemplate(text, objectsOf(groups, one)), missing)
	}
	shown := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return len(g.list) == 0 })
	if len(shown) == 0 {
		shown = groups[:1] // its columns
	}
	for i, g := range shown {
		if i > 0 {
			_, _ = fmt.Fprintln(a.out)
		}
		rows := g.Table(g.list, show.Options{Wide: a.output == "wide", Now: time.Now()})
		if len(groups) > 1 {
			for _, row := range rows[1:] {
				row[0] = g.Singular() + "/" + row[0]
			}
		}
		if err := table(a.out, rows); err != nil {
			return err
		}
		a.explainPods(ctx, c, g)
	}
	return missing
}

// objectsOf is one object as it is, and others as a list.
func objectsOf(groups []group, one bool) any {
	all := []metav1.Object{}
	for _, g := range groups {
		all = append(all, g.list...)
	}
	if one && len(all) == 1 {
		return all[0]
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": all}
}

// explainPods says what keeps pods from being ready; a table has no room for that.
func (a *app) explainPods(ctx context.Context, c *machineClient, g group) {
	if g.Name != "Pod" {
		return
	}
	whys, err := c.whys(ctx)
	if err != nil {
		return // the table is what was asked for
	}
	for _, o := range g.list {
		if why := show.Why(o, whys[o.GetUID()]); why != "" {
			a.note("pod %s: %s", show.Name(o.GetNamespace(), o.GetName()), oneLine(why))
		}
	}
}

func (a *app) getProblems(ctx context.Context) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	var list []machine.Problem
	if err := c.get(ctx, http.MethodGet, "/problems", nil, &list); err != nil {
		return err
	}
	return a.print(list, func() [][]string { return problemRows(list) })
}

// problemRows has a row for each line of a problem: a file may have many faults.
func problemRows(list []machine.Problem) [][]string {
	rows := [][]string{{"ORIGIN", "PROBLEM"}}
	for _, p := range list {
		for line := range strings.Lines(p.Error) {
			rows = append(rows, []string{p.Origin, strings.TrimRight(line, "\n")})
		}
	}
	return rows
}
