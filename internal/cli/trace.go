package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/inventory"
)

func (a *app) traceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace POD",
		Short: "Show where the time of a pod's start went",
		Long: "Show how long each operation on a pod and its containers took, and each of its stages: its start, and\n" +
			"its end as far as it has come to that. POD is a name, namespace/name, or the start of an id.\n\n" +
			"The pulls that waited for its images are there, too, where the caller said which pod they were for, as\n" +
			"a kubelet and fairlead run do. Layers are unpacked while others are fetched: \"unpack layers\" is what\n" +
			"remained when the last had come.\n\n" +
			"The daemon remembers the last 512 operations of all pods, until it ends. What it is doing at this\n" +
			"moment is what fairlead ops lists. A pod that fairlead run --detach has left while no daemon ran cannot\n" +
			"be traced: what had started it is gone.",
		Args: args("POD"),
		RunE: func(cmd *cobra.Command, list []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.trace(cmd.Context(), list[0])
		},
	}
	a.outputFlag(cmd)
	return cmd
}

// trace asks the daemon that runs: another remembers nothing.
func (a *app) trace(ctx context.Context, ref string) error {
	e, err := a.dialDaemon(ctx, "only that one which has started a pod remembers how")
	if err != nil {
		return fmt.Errorf("trace pod %s: %w", ref, err)
	}
	past, err := traceOf(ctx, e, ref)
	if err := errors.Join(err, e.Close()); err != nil {
		return err
	}
	if len(past) == 0 {
		a.note("the daemon does not remember how pod %s was started: that was too long ago, or under an earlier daemon", ref)
	}
	return a.print(past, func() [][]string { return traceRows(past) })
}

// traceRows has the whole of each operation above its stages, in the order of
// time.
func traceRows(past []adminv1.Past) [][]string {
	rows := [][]string{{"OPERATION", "OBJECT", "STAGE", "MS", "SHARE", "RESULT"}}
	for _, p := range past {
		result := "done"
		if p.Error != "" {
			result = p.Error
		}
		rows = append(rows, []string{p.Verb + " " + p.Kind, p.Name, "all", milliseconds(p.MS), "", result})
		for _, s := range p.Stages {
			share := ""
			if p.MS > 0 {
				share = strconv.Itoa(int(100*s.MS/p.MS+0.5)) + "%"
			}
			rows = append(rows, []string{"", "", s.Name, milliseconds(s.MS), share, ""})
		}
	}
	return rows
}

func milliseconds(ms float64) string { return strconv.FormatFloat(ms, 'f', 2, 64) }

func traceOf(ctx context.Context, e *endpoint.Endpoint, ref string) ([]adminv1.Past, error) {
	pods, err := inventory.List(ctx, e.Runtime)
	if err != nil {
		return nil, err
	}
	p, err := inventory.Find(pods, ref)
	if err != nil {
		return nil, err
	}
	stream, err := adminv1.Open(ctx, e.Conn(), "Trace")
	if err == nil {
		err = adminv1.SendJSON(stream, adminv1.TraceRequest{Pod: p.ID})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		return nil, err
	}
	var reply adminv1.TraceReply
	err = adminv1.ReceiveJSON(stream, &reply)
	if status.Code(err) == codes.Unimplemented {
		return nil, fmt.Errorf("trace pod %s: %s at %s does not remember, only Fairlead does: %w", ref, e.Name, e.Address, errdefs.ErrUnimplemented)
	}
	return reply.Operations, err
}
