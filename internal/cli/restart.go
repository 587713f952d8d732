package cli

import (
	"context"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/machine"
	"fairlead.run/internal/node/manifest"
)

func (a *app) restartCommand() *cobra.Command {
	var namespace string
	var p patience
	cmd := &cobra.Command{
		Use:   "restart {KIND NAME... | KIND/NAME...}",
		Short: "Have the pods of workloads made anew",
		Long: "Have the pods of Deployments, DaemonSets and StatefulSets that were applied made anew, as kubectl rollout\n" +
			"restart does, by the same annotation. To apply their manifests again later makes no pods anew for that.",
		Example: "  fairlead restart deploy/web\n  fairlead restart sts/db -n lab --wait --timeout 2m",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, list []string) error {
			objects, err := named(cmd, list, namespace)
			if err != nil {
				return err
			}
			return a.restart(cmd.Context(), objects, p)
		},
	}
	cmd.Flags().BoolVar(&p.wait, "wait", false, "wait until the new pods are ready")
	p.addTimeout(cmd, 0)
	namespaceFlag(cmd, &namespace)
	return cmd
}

func (a *app) restart(ctx context.Context, objects []selection, p patience) error {
	c, err := a.machine()
	if err != nil {
		return err
	}
	var all []machine.Applied
	for _, o := range objects {
		path := "/objects/" + url.PathEscape(o.Name) + "/" + url.PathEscape(o.name) + "/restart?namespace=" + url.QueryEscape(o.namespace)
		var done machine.Applied
		if err := c.get(ctx, http.MethodPost, path, nil, &done); err != nil {
			return err
		}
		a.tellApplied(done)
		all = append(all, done)
	}
	return c.allReady(ctx, p, all)
}

// allReady waits until objects are ready, if that is asked for.
func (c *machineClient) allReady(ctx context.Context, p patience, all []machine.Applied) error {
	if !p.wait {
		return nil
	}
	return p.until(ctx, func(ctx context.Context) (string, error) {
		for _, d := range all {
			if d.Change == machine.LeftOut {
				continue // it was left out, and nobody keeps it
			}
			missing, err := c.unready(ctx, manifest.Single{Kind: d.Kind, Key: manifest.Key{Namespace: d.Namespace, Name: d.Name}})
			if err != nil || missing != "" {
				return missing, err
			}
		}
		return "", nil
	})
}
