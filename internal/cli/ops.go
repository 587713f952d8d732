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
)

func (a *app) opsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "List what the daemon is doing: operations in flight, their stage and age",
		Long: "List what the daemon is doing at this moment: each operation on a pod, a container or an image, how\n" +
			"long it has been at work, its stage and since when it has been at that one, and how many callers\n" +
			"wait for its end. An operation goes on when its callers have given up; the same request then joins it.\n\n" +
			"One that stays at a stage for long is stuck there: looking at a host path, for example, that is on a\n" +
			"file system whose server is dead. Other pods do not wait for it.\n\n" +
			"Where no daemon runs (fairlead runtime), there is nothing to list.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.ops(cmd.Context())
		},
	}
	a.outputFlag(cmd)
	return cmd
}

// ops asks the daemon that runs. To start one for this would be pointless.
func (a *app) ops(ctx context.Context) error {
	e, err := a.dialDaemon(ctx, "without one nothing is in flight")
	if err != nil {
		return fmt.Errorf("list operations: %w", err)
	}
	list, err := adminOps(ctx, e)
	if err := errors.Join(err, e.Close()); err != nil {
		return err
	}
	return a.print(list, func() [][]string {
		rows := [][]string{{"OPERATION", "OBJECT", "STAGE", "AGE", "AT STAGE", "WAITING", "ID"}}
		for _, op := range list {
			rows = append(rows, []string{
				op.Verb + " " + op.Kind, op.Name, op.Stage, age(op.Began), age(op.Entered), strconv.Itoa(op.Waiting), short(op.ID),
			})
		}
		return rows
	})
}

func adminOps(ctx context.Context, e *endpoint.Endpoint) ([]adminv1.Operation, error) {
	stream, err := adminv1.Open(ctx, e.Conn(), "Ops")
	if err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	var reply adminv1.OpsReply
	err = adminv1.ReceiveJSON(stream, &reply)
	if status.Code(err) == codes.Unimplemented {
		return nil, fmt.Errorf("list operations: %s at %s does not tell them, only Fairlead does: %w", e.Name, e.Address, errdefs.ErrUnimplemented)
	}
	return reply.Operations, err
}
