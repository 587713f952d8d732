package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/classes"
	"fairlead.run/internal/classes/manifests"
	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/pkg/runtimeclass"
)

// errUnschedulable and errFindings make the exit code 1 for answers that are
// complete.
var (
	errUnschedulable = errors.New("it is not schedulable")
	errFindings      = errors.New("there are errors in the manifests")
)

// where says where classes are looked at: in a cluster, in files, or in both.
type where struct {
	kubeconfig, context string
	files               []string
	legacy              runtimeclass.Legacy
}

func (w *where) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.kubeconfig, "kubeconfig", "", "the `FILE` that names the cluster; without it $KUBECONFIG, ~/.kube/config, or the service account of this pod")
	f.StringVar(&w.context, "context", "", "the `NAME` of a context in the kubeconfig")
	f.StringArrayVarP(&w.files, "filename", "f", nil, "look at manifests in a `FILE`, a folder with all below it, or - for standard input, and not at a cluster unless --kubeconfig or --context is given, too")
	legacyFlags(cmd, &w.legacy)
}

// readClasses reads the cluster, if it is asked for, and the manifests.
func (a *app) readClasses(ctx context.Context, w *where) (*classes.Snapshot, *manifests.Set, error) {
	s := &classes.Snapshot{Legacy: w.legacy}
	set, err := manifests.Read(w.files, a.in)
	if err != nil {
		return nil, nil, err
	}
	if len(w.files) > 0 && w.kubeconfig == "" && w.context == "" {
		return s, set, nil
	}
	config, err := cluster.Config(w.kubeconfig, w.context)
	if err != nil {
		return nil, nil, err
	}
	client, err := cluster.NewClient(config)
	if err != nil {
		return nil, nil, err
	}
	return s, set, readCluster(ctx, client, s)
}

// readCluster reads what a snapshot has. A cluster without the CRD of policies
// has no policies.
func readCluster(ctx context.Context, client *cluster.Client, s *classes.Snapshot) error {
	page := func(list runtime.Object) error {
		switch l := list.(type) {
		case *nodev1.RuntimeClassList:
			s.Classes = append(s.Classes, pointers(l.Items)...)
		case *v1alpha1.RuntimeClassPolicyList:
			s.Policies = append(s.Policies, pointers(l.Items)...)
		case *corev1.NamespaceList:
			s.Namespaces = append(s.Namespaces, pointers(l.Items)...)
		case *corev1.NodeList:
			s.Nodes = append(s.Nodes, pointers(l.Items)...)
		case *corev1.PodList:
			s.Pods = append(s.Pods, pointers(l.Items)...)
		default:
			return fmt.Errorf("got a %T: %w", list, errdefs.ErrUnimplemented)
		}
		return nil
	}
	for _, from := range []schema.GroupVersionResource{
		nodev1.SchemeGroupVersion.WithResource(cluster.Classes),
		v1alpha1.SchemeGroupVersion.WithResource(cluster.Policies),
		corev1.SchemeGroupVersion.WithResource(cluster.Namespaces),
		corev1.SchemeGroupVersion.WithResource(cluster.Nodes),
		corev1.SchemeGroupVersion.WithResource(cluster.Pods),
	} {
		err := client.List(ctx, from, page)
		if from.Resource == cluster.Policies && apierrors.IsNotFound(errors.Unwrap(err)) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

func (a *app) classesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "Look at the RuntimeClasses of a cluster, or of manifests",
		Long: "Look at the RuntimeClasses of a cluster, or of manifests: which there are, who has and uses them, why\n" +
			"a pod finds no node, and what is wrong in manifests. Nothing is changed.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.classesListCommand(), a.classesExplainCommand(), a.classesLintCommand())
	return cmd
}

func (a *app) classesListCommand() *cobra.Command {
	w := &where{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List RuntimeClasses, the nodes that match them, and the pods that use them",
		Example: "fairlead classes list\n" +
			"fairlead classes list -f manifests/ -o json",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			s, set, err := a.readClasses(cmd.Context(), w)
			if err != nil {
				return err
			}
			s.AddManifests(set)
			list, err := classes.List(s)
			if err != nil {
				return err
			}
			return a.print(list, func() [][]string { return classRows(list) })
		},
	}
	w.flags(cmd)
	a.outputFlag(cmd)
	return cmd
}

func classRows(list []classes.Class) [][]string {
	rows := [][]string{{"CLASS", "HANDLER", "ISOLATION", "OVERHEAD", "NODES", "PODS", "AGE"}}
	for _, c := range list {
		name, since := c.Name, ""
		if c.Default {
			name += " (default)"
		}
		if !c.Created.IsZero() {
			since = age(c.Created)
		}
		rows = append(rows, []string{name, c.Handler, string(c.Isolation), overheadText(c.Overhead), fmt.Sprintf("%d/%d", c.Matching, c.Nodes), fmt.Sprint(c.Pods), since})
	}
	return rows
}

func overheadText(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}
