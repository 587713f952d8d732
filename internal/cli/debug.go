package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
)

func (a *app) debugCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "debug", Short: "Look into the daemon that runs", Args: args(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.debugProfileCommand())
	return cmd
}

func (a *app) debugProfileCommand() *cobra.Command {
	var req adminv1.ProfileRequest
	var file string
	cmd := &cobra.Command{
		Use:   "profile -o FILE",
		Short: "Write a profile of the processor time that the daemon takes",
		Long: "Write a profile of the processor time that the daemon takes from now on, for go tool pprof. It looks a\n" +
			"hundred times in each second of processor time, and costs next to nothing beside. There can be one\n" +
			"at a time.\n\n" +
			"What runc, crun, CNI plugins and the monitor take is not in it: they are processes of their own.",
		Example: "fairlead debug profile --seconds 60 -o cpu.pprof\ngo tool pprof -top cpu.pprof",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Seconds < 1 || req.Seconds > adminv1.MaxProfileSeconds {
				return usageError{fmt.Errorf("--seconds is %d; want 1 to %d", req.Seconds, adminv1.MaxProfileSeconds)}
			}
			if err := a.checkFile(file, "a profile"); err != nil {
				return err
			}
			return a.profile(cmd.Context(), req, file)
		},
	}
	cmd.Flags().IntVar(&req.Seconds, "seconds", 30, fmt.Sprintf("how long, 1 to %d", adminv1.MaxProfileSeconds))
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, or - for standard output")
	return cmd
}

// profile asks the daemon that runs. One of our own would have nothing to do.
func (a *app) profile(ctx context.Context, req adminv1.ProfileRequest, file string) error {
	e, err := a.dialDaemon(ctx, "without one there is nothing to look into")
	if err != nil {
		return fmt.Errorf("profile the daemon: %w", err)
	}
	err = a.writeFile(file, func(w io.Writer) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		p, err := adminv1.Profile(ctx, e.Conn(), req)
		if status.Code(err) == codes.Unimplemented {
			err = fmt.Errorf("%s at %s has no such call, only Fairlead has: %w", e.Name, e.Address, errdefs.ErrUnimplemented)
		}
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(a.err, "fairlead: profiling the daemon for %d s\n", req.Seconds)
		return p.Copy(w)
	})
	return errors.Join(err, e.Close())
}
