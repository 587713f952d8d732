package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
)

func (a *app) handlersAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add NAME [KEY=VALUE...]",
		Short: "Add a runtime handler to the daemon that runs",
		Long: "Add a runtime handler to the daemon that runs. The keys are those of a table [handlers.NAME] in the\n" +
			"configuration; quotes around text may be left out. The handler is tried first, step by step, and is\n" +
			"added only if it works. It outlives restarts, in handlers.d in the root directory.",
		Example: "fairlead handlers add gvisor path=/usr/local/bin/runsc 'args=[\"--platform=kvm\"]'",
		Args:    args("NAME..."),
		RunE:    a.changeHandler("add", "added"),
	}
}

func (a *app) handlersSetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME KEY=VALUE...",
		Short: "Change a runtime handler that was added",
		Long: "Change keys of a runtime handler that was added by command; KEY= takes one out. It is tried as for\n" +
			"add, and stays as it was if it does not work. Pods that run go on with what they were started with.",
		Args: args("NAME", "KEY=VALUE..."),
		RunE: a.changeHandler("set", "changed"),
	}
}

func (a *app) handlersRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a runtime handler that was added",
		Long: "Remove a runtime handler that was added by command. New pods are refused from then on; those that run\n" +
			"are not touched, and the handler is gone with the last of them.",
		Args: args("NAME"),
		RunE: a.changeHandler("rm", "removed"),
	}
}

func (a *app) changeHandler(verb, done string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		req := adminv1.ChangeRequest{Verb: verb, Name: given[0], Settings: given[1:]}
		return a.with(cmd.Context(), func(s *session) error { return a.sendChange(cmd.Context(), s, req, done) })
	}
}

func (a *app) sendChange(ctx context.Context, s *session, req adminv1.ChangeRequest, done string) error {
	began := time.Now()
	e, err := adminv1.ChangeHandler(ctx, s.Conn(), req, func(step string) {
		_, _ = fmt.Fprintf(a.out, "%8s  %s\n", inMS(float64(time.Since(began).Microseconds())/1000), visible(step))
	})
	if status.Code(err) == codes.Unimplemented {
		err = fmt.Errorf("%s at %s cannot change its handlers, only Fairlead can: %w", s.Name, s.Address, errdefs.ErrUnimplemented)
	}
	if err != nil {
		return err
	}
	how := done
	switch {
	case e.Handler != nil && e.Handler.State == "Draining":
		how = fmt.Sprintf("removed; %d pods still run on it, and new ones are refused", e.Handler.Pods)
	case e.Handler != nil:
		how += "; " + verified(e.Handler)
	}
	_, err = fmt.Fprintf(a.out, "handler %s is %s\n", req.Name, how)
	return err
}
