package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/inventory"
	"fairlead.run/internal/node/removal"
)

type removeFlags struct {
	grace int64
	all   bool
}

func (f *removeFlags) add(cmd *cobra.Command, verb string) {
	cmd.Flags().Int64Var(&f.grace, "grace", -1, "seconds to give the containers (default the pod's own grace period)")
	cmd.Flags().BoolVar(&f.all, "all", false, verb+" all pods")
}

func (a *app) stopCommand() *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{
		Use:   "stop POD...",
		Short: "Stop pods, and keep them to be looked at",
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.eachPod(cmd, list, f, func(ctx context.Context, s *session, p *inventory.Pod, r removal.Pod) error {
				return removal.StopPod(ctx, s.Runtime, r)
			})
		},
	}
	f.add(cmd, "stop")
	return cmd
}

func (a *app) rmCommand() *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{
		Use:   "rm POD...",
		Short: "Stop and remove pods, with their volumes and logs",
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.eachPod(cmd, list, f, func(ctx context.Context, s *session, p *inventory.Pod, r removal.Pod) error {
				if err := removal.RemovePod(ctx, s.Runtime, r); err != nil {
					return err
				}
				return removal.Files(ctx, s.cfg.Root, s.cfg.State, p.UID)
			})
		},
	}
	f.add(cmd, "remove")
	return cmd
}

type podVerb func(context.Context, *session, *inventory.Pod, removal.Pod) error

// eachPod finds all pods before it touches the first, then does them at once.
func (a *app) eachPod(cmd *cobra.Command, list []string, f removeFlags, do podVerb) error {
	if f.all == (len(list) > 0) {
		return usageError{fmt.Errorf("name the pods, or use --all; see %s --help", cmd.CommandPath())}
	}
	ctx := cmd.Context()
	return a.with(ctx, func(s *session) error {
		pods, err := inventory.List(ctx, s.Runtime)
		if err != nil {
			return err
		}
		var chosen []*inventory.Pod
		for i := range pods {
			if f.all {
				chosen = append(chosen, &pods[i])
			}
		}
		seen := map[string]bool{}
		for _, ref := range list {
			p, err := inventory.Find(pods, ref)
			if err != nil {
				return err
			}
			if !seen[p.ID] {
				chosen = append(chosen, p)
			}
			seen[p.ID] = true
		}
		return a.doAll(ctx, s, chosen, f, do)
	})
}

func (a *app) doAll(ctx context.Context, s *session, pods []*inventory.Pod, f removeFlags, do podVerb) error {
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		grace := f.grace
		if grace < 0 {
			grace = removal.GraceOf(p.Annotations)
		}
		wg.Go(func() {
			note := func(text string) { a.note("pod %s: %s", p.ShortName(), text) }
			if err := do(ctx, s, p, removal.Pod{ID: p.ID, By: removal.In(grace), Note: note}); err != nil {
				errs[i] = fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
			}
		})
	}
	wg.Wait()
	for i, p := range pods {
		if errs[i] == nil {
			_, _ = fmt.Fprintln(a.out, p.ShortName())
		}
	}
	return errors.Join(errs...)
}
