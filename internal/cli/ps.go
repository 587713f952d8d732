package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/inventory"
)

func (a *app) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List pods, with their class, handler and address",
		Long:  "List all pods that were not removed, those that have ended included, with their class, handler and address.",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(s *session) error { return a.ps(cmd.Context(), s) })
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) ps(ctx context.Context, s *session) error {
	pods, err := inventory.List(ctx, s.Runtime)
	if err != nil {
		return err
	}
	inventory.AddDetails(ctx, s.Runtime, pods)
	defer a.explain(pods)
	return a.print(pods, func() [][]string {
		rows := [][]string{{"POD", "CLASS", "HANDLER", "ADDRESS", "STATE", "CONTAINERS", "AGE", "ID"}}
		for _, p := range pods {
			running := 0
			for _, c := range p.Containers {
				if c.State == "Running" {
					running++
				}
			}
			rows = append(rows, []string{
				p.ShortName(), p.Class, p.Handler, strings.Join(p.Addresses, ","), p.State,
				fmt.Sprintf("%d/%d", running, len(p.Containers)), age(p.CreatedAt), short(p.ID),
			})
		}
		return rows
	})
}

// explain says why pods and containers could not be observed, and whose network
// is not in order; a table has no room for that.
func (a *app) explain(pods []inventory.Pod) {
	if a.output != "table" {
		return
	}
	for _, p := range pods {
		if p.Reason != "" {
			a.note("pod %s is Unknown: %s", p.ShortName(), p.Reason)
		}
		if p.NetworkFault != "" {
			a.note("the network of pod %s is not in order: %s; fairlead fsck says what helps", p.ShortName(), p.NetworkFault)
		}
		for _, c := range p.Containers {
			if c.Message != "" {
				a.note("container %s of pod %s is Unknown: %s", c.Name, p.ShortName(), c.Message)
			}
		}
	}
}

func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "fairlead: %s\n", visible(fmt.Sprintf(format, args...)))
}

// short is an id as people read it.
func short(id string) string { return id[:min(13, len(id))] }
