package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	namespace, name     string // of the pod that is asked about, if one may be
	lint                bool   // of use also where classes cannot be read
}

func (w *where) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.kubeconfig, "kubeconfig", "", "the `FILE` that names the cluster; without it $KUBECONFIG, ~/.kube/config, or the service account of this pod")
	f.StringVar(&w.context, "context", "", "the `NAME` of a context in the kubeconfig")
	f.StringArrayVarP(&w.files, "filename", "f", nil, "look at manifests in a `FILE`, a folder with all below it, or - for standard input, and not at a cluster unless --kubeconfig or --context is given, too")
	legacyFlags(cmd, &w.legacy)
}

// requestTimeout is for an API server that takes requests and answers none. Lists
// come in parts, so that none takes long.
const requestTimeout = time.Minute

// readClasses reads the cluster, if it is asked for, and the manifests.
func (a *app) readClasses(ctx context.Context, w *where) (*classes.Snapshot, *manifests.Set, error) {
	s := &classes.Snapshot{Legacy: w.legacy}
	set, err := a.readFiles(ctx, w.files)
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
	config.Timeout = requestTimeout
	client, err := cluster.NewClient(config)
	if err != nil {
		return nil, nil, err
	}
	err = a.readCluster(ctx, client, w, s)
	if apierrors.IsUnauthorized(err) {
		err = fmt.Errorf("%s does not take the credentials of the kubeconfig; renew them: %w", client.Host(), err)
	}
	return s, set, err
}

// readFiles reads manifests until ctx ends. Neither a terminal nor a parser can be
// told that, so what reads them is left behind then: the process ends.
func (a *app) readFiles(ctx context.Context, files []string) (*manifests.Set, error) {
	type result struct {
		set *manifests.Set
		err error
	}
	done := make(chan result, 1)
	go func() {
		set, err := manifests.Read(files, a.in)
		done <- result{set, err}
	}()
	select {
	case r := <-done:
		return r.set, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read manifests: %w", context.Canceled)
	}
}

// readManifests is readClasses with the manifests in the snapshot, and tells what
// of them could not be read.
func (a *app) readManifests(ctx context.Context, w *where) (*classes.Snapshot, error) {
	s, set, err := a.readClasses(ctx, w)
	if err != nil {
		return nil, err
	}
	s.AddManifests(set)
	faults := classes.Faults(set)
	for i, f := range faults {
		if i == mostFaults {
			a.tell("%d more cannot be read; fairlead classes lint tells all", len(faults)-i)
			break
		}
		a.tell("%s", findingText(f))
	}
	return s, nil
}

// mostFaults bounds what is told beside an answer.
const mostFaults = 10

// tell says something beside the answer.
func (a *app) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "fairlead: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// readCluster reads what a snapshot has. A cluster without the CRD of policies
// has no policies. What may not be read is told, and left out.
func (a *app) readCluster(ctx context.Context, client *cluster.Client, w *where, s *classes.Snapshot) error {
	for _, from := range []struct {
		schema.GroupVersionResource
		what string
	}{
		{nodev1.SchemeGroupVersion.WithResource(cluster.Classes), classes.Known},
		{v1alpha1.SchemeGroupVersion.WithResource(cluster.Policies), classes.Policies},
		{corev1.SchemeGroupVersion.WithResource(cluster.Namespaces), classes.Namespaces},
		{corev1.SchemeGroupVersion.WithResource(cluster.Nodes), classes.Nodes},
		{corev1.SchemeGroupVersion.WithResource(cluster.Pods), classes.Pods},
	} {
		err := client.List(ctx, from.GroupVersionResource, func(list runtime.Object) error { return take(s, list) })
		switch {
		case err == nil, from.what == classes.Policies && apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err) && (w.lint || from.what != classes.Known):
			s.Unread = append(s.Unread, from.what)
			a.tell("%v", err)
		default:
			return err
		}
	}
	return readOne(ctx, client, w, s)
}

// readOne reads the pod that is asked about, and its namespace, for those who may
// not read all.
func readOne(ctx context.Context, client *cluster.Client, w *where, s *classes.Snapshot) error {
	if w.name == "" {
		return nil
	}
	if slices.Contains(s.Unread, classes.Pods) {
		p := &corev1.Pod{}
		err := client.REST(corev1.SchemeGroupVersion).Get().Namespace(w.namespace).Resource(cluster.Pods).Name(w.name).Do(ctx).Into(p)
		switch {
		case err == nil:
			s.Pods = append(s.Pods, p)
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			return fmt.Errorf("get pod %s/%s: %w", w.namespace, w.name, err)
		}
	}
	if at := slices.Index(s.Unread, classes.Namespaces); at >= 0 {
		ns, err := client.Namespace(ctx, w.namespace)
		switch {
		case err == nil:
			s.Namespaces, s.Unread = append(s.Namespaces, ns), slices.Delete(s.Unread, at, at+1)
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}

// take adds a part of a list to a snapshot.
func take(s *classes.Snapshot, list runtime.Object) error {
	switch l := list.(type) {
	case *nodev1.RuntimeClassList:
		s.Classes = append(s.Classes, pointers(l.Items)...)
	case *v1alpha1.RuntimeClassPolicyList:
		s.Policies = append(s.Policies, pointers(l.Items)...)
	case *corev1.NamespaceList:
		s.Namespaces = append(s.Namespaces, pointers(l.Items)...)
	case *corev1.NodeList:
		for i := range l.Items {
			l.Items[i].ManagedFields, l.Items[i].Status.Images = nil, nil
		}
		s.Nodes = append(s.Nodes, pointers(l.Items)...)
	case *corev1.PodList:
		for i := range l.Items {
			s.Pods = append(s.Pods, slim(&l.Items[i]))
		}
	default:
		return fmt.Errorf("got a %T: %w", list, errdefs.ErrUnimplemented)
	}
	return nil
}

// slim is a pod without what nobody asks for here: a cluster can have a hundred
// thousand. One that has a node or has ended counts for its requests only.
func slim(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations, OwnerReferences: p.OwnerReferences},
		Status:     corev1.PodStatus{Phase: p.Status.Phase},
	}
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation)
	if out.Spec = p.Spec; p.Spec.NodeName == "" {
		return out
	}
	out.Labels, out.OwnerReferences = nil, nil
	out.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, RuntimeClassName: p.Spec.RuntimeClassName, Overhead: p.Spec.Overhead, Resources: p.Spec.Resources,
		Containers: demanding(p.Spec.Containers), InitContainers: demanding(p.Spec.InitContainers),
	}
	return out
}

// demanding is what containers request.
func demanding(list []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(list))
	for _, c := range list {
		out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return out
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
			s, err := a.readManifests(cmd.Context(), w)
			if err != nil {
				return err
			}
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
		nodes, pods := fmt.Sprintf("%d/%d", c.Matching, c.Nodes), fmt.Sprint(c.Pods)
		if slices.Contains(c.Unknown, classes.Nodes) {
			nodes = "?"
		}
		if slices.Contains(c.Unknown, classes.Pods) {
			pods = "?"
		}
		rows = append(rows, []string{name, c.Handler, string(c.Isolation), overheadText(c.Overhead), nodes, pods, since})
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
