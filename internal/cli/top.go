package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/cli/show"
	"fairlead.run/internal/errdefs"
)

func (a *app) topCommand() *cobra.Command {
	var containers bool
	var namespace string
	cmd := &cobra.Command{
		Use:   "top {pods [NAME...] | node}",
		Short: "Show what the pods that fairlead up keeps use, or the machine",
		Long: "Show how much of the processors and of memory the pods that fairlead up keeps use, or the machine does. It is\n" +
			"measured for a second. CPU is in thousandths of a processor, memory what cannot be reclaimed at once.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, list []string) error {
			k, err := show.Find(list[0])
			if err != nil || k.Name != "Pod" && k.Name != "Node" {
				return usageError{fmt.Errorf("there are pods and node to look at, and no %q", list[0])}
			}
			if k.Name == "Node" {
				return a.topNode(cmd.Context())
			}
			wanted, err := selections(cmd, list, namespace)
			if err != nil {
				return err
			}
			return a.topPods(cmd.Context(), wanted, containers)
		},
	}
	cmd.Flags().BoolVar(&containers, "containers", false, "show containers by themselves")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only of this namespace")
	return cmd
}

func (c *machineClient) usage(ctx context.Context) (*statsv1.Summary, error) {
	out := &statsv1.Summary{}
	return out, c.get(ctx, http.MethodGet, "/usage", nil, out)
}

func (a *app) topPods(ctx context.Context, wanted []selection, containers bool) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	s, err := c.usage(ctx)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	chosen := slices.DeleteFunc(s.Pods, func(p statsv1.PodStats) bool {
		o := &corev1.Pod{}
		o.Namespace, o.Name = p.PodRef.Namespace, p.PodRef.Name
		i := slices.IndexFunc(wanted, func(s selection) bool { return s.has(o) })
		if i >= 0 {
			found[wanted[i].name] = true
		}
		return i < 0
	})
	for _, w := range wanted {
		if w.name != "" && !found[w.name] {
			return fmt.Errorf("no pod %s runs; see: fairlead get pods: %w", w.name, errdefs.ErrNotFound)
		}
	}
	return table(a.out, show.TopPods(chosen, containers))
}

func (a *app) topNode(ctx context.Context) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	s, err := c.usage(ctx)
	if err != nil {
		return err
	}
	k, err := show.Find("node")
	if err != nil {
		return err
	}
	nodes, err := c.objects(ctx, k)
	if err != nil {
		return err
	}
	of := &corev1.Node{}
	if len(nodes) > 0 {
		of = nodes[0].(*corev1.Node)
	}
	return table(a.out, show.TopNode(s.Node, of))
}
