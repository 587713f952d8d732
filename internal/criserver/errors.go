package criserver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairlead.run/internal/errdefs"
)

// kinds is the one mapping from kinds of errors to status codes. The first
// that matches counts.
var kinds = []struct {
	kind error
	code codes.Code
}{
	{errdefs.ErrInvalidArgument, codes.InvalidArgument},
	{errdefs.ErrNotFound, codes.NotFound},
	{errdefs.ErrAlreadyExists, codes.AlreadyExists},
	{errdefs.ErrPrecondition, codes.FailedPrecondition},
	{errdefs.ErrExhausted, codes.ResourceExhausted},
	{errdefs.ErrUnimplemented, codes.Unimplemented},
	{errdefs.ErrDeadline, codes.DeadlineExceeded},
	{errdefs.ErrUnavailable, codes.Unavailable},
	{errdefs.ErrInternal, codes.Internal},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// statusOf is the error as gRPC sends it.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return status.Error(k.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
