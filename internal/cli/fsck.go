package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/daemon"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/endpoint"
)

// errLeft says that findings are left; they were printed already.
var errLeft = errors.New("findings are left")

// blindError says that fsck could not look.
type blindError struct{ error }

func (e blindError) Unwrap() error { return e.error }

func (a *app) fsckCommand() *cobra.Command {
	var req adminv1.FsckRequest
	var dry bool
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Compare what is on this machine with the records of pods, and repair it",
		Long: "Compare what is on this machine with the records of pods: processes, mounts, namespaces, cgroups, links,\n" +
			"addresses, host ports, layers, blobs, FIFOs and folders. What no pod needs is a leftover; what a pod\n" +
			"needs may be missing or faulty. Each finding is printed with what a repair does or what else helps.\n" +
			"Nothing is changed without --repair, and never what a pod uses.\n\n" +
			"A daemon that runs does the work. Without one, the command opens the records itself.\n\n" +
			"The exit code is 0 if nothing was found or everything was repaired, 1 if findings are left, and 2 if\n" +
			"something could not be looked at.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dry && req.Repair {
				return usageError{errors.New("--dry-run and --repair exclude each other")}
			}
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.fsck(cmd.Context(), req)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "change nothing, which is so without --repair anyway")
	cmd.Flags().BoolVar(&req.Repair, "repair", false, "repair what can be repaired")
	cmd.Flags().BoolVar(&req.VerifyContent, "verify-content", false, "read all images and compare them with their digests")
	a.outputFlag(cmd)
	return cmd
}

func (a *app) fsck(ctx context.Context, req adminv1.FsckRequest) error {
	reply, err := a.audit(ctx, req)
	if err != nil {
		return blindError{fmt.Errorf("fsck: %w", err)}
	}
	if len(reply.Findings) > 0 || a.output != "table" {
		if err := a.print(reply, func() [][]string { return fsckRows(&reply, req.Repair) }); err != nil {
			return err
		}
	}
	a.fsckNotes(&reply, req.Repair)
	switch {
	case len(reply.Blind) > 0:
		return blindError{errors.New("fsck: what could not be looked at:\n" + strings.Join(reply.Blind, "\n"))}
	case len(reply.Left()) > 0:
		return errLeft
	}
	return nil
}

// audit asks the daemon that serves, or looks without one.
func (a *app) audit(ctx context.Context, req adminv1.FsckRequest) (adminv1.FsckReply, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return adminv1.FsckReply{}, err
	}
	where := a.endpoint
	if where == "" {
		where = address(cfg)
	}
	e, err := endpoint.Dial(ctx, where)
	switch {
	case err == nil:
		reply, err := adminv1.Fsck(ctx, e.Conn(), req)
		if status.Code(err) == codes.Unimplemented {
			err = fmt.Errorf("%s at %s cannot, only Fairlead can: %w", e.Name, e.Address, errdefs.ErrUnimplemented)
		}
		return reply, errors.Join(err, e.Close())
	case a.endpoint != "" || !errors.Is(err, errdefs.ErrNotFound) && !errors.Is(err, errdefs.ErrUnavailable):
		return adminv1.FsckReply{}, err
	}
	if err := needRoot(where); err != nil {
		return adminv1.FsckReply{}, err
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelError}))
	return daemon.Fsck(ctx, cfg, log, req)
}

func fsckRows(r *adminv1.FsckReply, repaired bool) [][]string {
	rows := [][]string{{"CODE", "OBJECT", "POD", "PROBLEM", "REPAIR"}}
	if repaired {
		rows[0][4] = "RESULT"
	}
	for _, f := range r.Findings {
		rows = append(rows, []string{f.Code, f.Object, f.Pod, f.Problem, fsckResult(f)})
	}
	return rows
}

func fsckResult(f adminv1.Finding) string {
	switch {
	case f.Repaired:
		return "done: " + f.Action
	case f.Error != "":
		return "failed: " + strings.ReplaceAll(f.Error, "\n", "; ")
	case f.Repairable:
		return f.Action
	}
	return "not possible; " + f.Action
}

// fsckNotes says in one line what the findings come to.
func (a *app) fsckNotes(r *adminv1.FsckReply, repair bool) {
	var w io.Writer = a.err
	for _, id := range r.Busy {
		_, _ = fmt.Fprintf(w, "fairlead: pod %s was being changed all the while, and nothing is said of it\n", short(id))
	}
	left := r.Left()
	can := 0
	for _, f := range left {
		if f.Repairable {
			can++
		}
	}
	switch {
	case len(r.Findings) == 0 && len(r.Blind)+len(r.Busy) > 0:
	case len(r.Findings) == 0:
		_, _ = fmt.Fprintln(w, "fairlead: everything agrees with the records")
	case !repair && can > 0:
		_, _ = fmt.Fprintf(w, "fairlead: %d found; fairlead fsck --repair repairs %d\n", len(left), can)
	default:
		_, _ = fmt.Fprintf(w, "fairlead: %d found, %d repaired, %d left\n", len(r.Findings), len(r.Findings)-len(left), len(left))
	}
}
