package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/advert"
)

// How often the daemon is asked, which costs next to nothing, and how often the
// node is read again though nothing has changed here: others may change it.
const (
	publishEvery = 10 * time.Second
	repairEvery  = 5 * time.Minute
)

// publisher tells an API server of the handlers of this machine.
type publisher struct {
	*app
	client *cluster.Client
	node   string

	told   string // what was last written, and
	toldAt time.Time
}

func (a *app) handlersPublishCommand() *cobra.Command {
	var kubeconfig, context, node string
	var once bool
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Say on this machine's Node object which handlers work, and what they can do",
		Long: "Say on this machine's Node object which handlers work (label handler.fairlead.run/NAME, true or\n" +
			"false) and what they can do (annotation features.fairlead.run/NAME), and keep it true until it is\n" +
			"interrupted. RuntimeClasses are matched with nodes by that. The kubeconfig of the kubelet may do it.",
		Example: "fairlead handlers publish --kubeconfig /etc/kubernetes/kubelet.conf",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := cluster.Config(kubeconfig, context)
			if err != nil {
				return err
			}
			client, err := cluster.NewClient(config)
			if err != nil {
				return err
			}
			if node == "" {
				if node, err = os.Hostname(); err != nil {
					return fmt.Errorf("ask for the name of this machine, as --node does not give it: %w", err)
				}
			}
			p := &publisher{app: a, client: client, node: strings.ToLower(node)}
			if once {
				return p.publish(cmd.Context())
			}
			return p.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the `FILE` that names the API server; without it $KUBECONFIG, ~/.kube/config, or the service account of this pod")
	cmd.Flags().StringVar(&context, "context", "", "the `NAME` of a context in the kubeconfig")
	cmd.Flags().StringVar(&node, "node", os.Getenv("NODE_NAME"), "the `NAME` of this machine's Node; without it $NODE_NAME, or the host name")
	cmd.Flags().BoolVar(&once, "once", false, "write it once, and end")
	return cmd
}

// run publishes until ctx ends. Neither the daemon nor the API server must be
// there all the time.
func (p *publisher) run(ctx context.Context) error {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	trouble := ""
	for {
		err := p.publish(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && err.Error() != trouble:
			fmt.Fprintf(p.err, "%s: %v; trying again\n", time.Now().Format(time.RFC3339), err)
			trouble = err.Error()
		case err == nil:
			trouble = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// publish writes what the daemon says, if the node says something else.
func (p *publisher) publish(ctx context.Context) error {
	handlers, err := p.handlers(ctx)
	if err != nil {
		return err
	}
	what := describeHandlers(handlers)
	if what == p.told && time.Since(p.toldAt) < repairEvery {
		return nil
	}
	nodes := p.client.REST(corev1.SchemeGroupVersion)
	var node corev1.Node
	if err := nodes.Get().Resource("nodes").Name(p.node).Do(ctx).Into(&node); err != nil {
		return fmt.Errorf("get node %s: %w", p.node, err)
	}
	patch, err := advert.Patch(&node, handlers)
	if err != nil {
		return err
	}
	if patch != nil {
		if err := nodes.Patch(types.MergePatchType).Resource("nodes").Name(p.node).Body(patch).Do(ctx).Error(); err != nil {
			return fmt.Errorf("patch node %s: %w", p.node, err)
		}
		fmt.Fprintf(p.out, "node %s: %s\n", p.node, what)
	}
	p.told, p.toldAt = what, time.Now()
	return nil
}

// handlers asks the daemon.
func (p *publisher) handlers(ctx context.Context) ([]advert.Handler, error) {
	e, err := p.dialDaemon(ctx, "a handler is published for pods that come later")
	if err != nil {
		return nil, err
	}
	list, err := adminv1.Handlers(ctx, e.Conn())
	if err := errors.Join(err, e.Close()); err != nil {
		return nil, fmt.Errorf("list handlers: %w", err)
	}
	var out []advert.Handler
	for _, h := range list {
		out = append(out, advert.Handler{Name: h.Name, OnTrial: h.State == "Unverified", Works: h.State == "Ready", Features: h.Features})
	}
	return out, nil
}

// describeHandlers is for people: "runc (userNamespaces), not kata".
func describeHandlers(handlers []advert.Handler) string {
	if len(handlers) == 0 {
		return "no handlers"
	}
	var parts []string
	for _, h := range handlers {
		switch {
		case h.OnTrial:
			parts = append(parts, h.Name+" is on trial")
		case !h.Works:
			parts = append(parts, h.Name+" does not work")
		case len(h.Features) == 0:
			parts = append(parts, h.Name)
		default:
			parts = append(parts, h.Name+" ("+strings.Join(h.Features, ", ")+")")
		}
	}
	return strings.Join(parts, "; ")
}
