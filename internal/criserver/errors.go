package criserver

import (
	"context"
	"errors"
	"strings"
	"syscall"

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
	{syscall.ENOSPC, codes.ResourceExhausted},
	{syscall.EDQUOT, codes.ResourceExhausted},
	{syscall.EROFS, codes.FailedPrecondition},
	{syscall.EIO, codes.Unavailable},
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
	text := shorten(err.Error(), maxErrorText)
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return status.Error(k.code, text)
		}
	}
	return status.Error(codes.Internal, text)
}

// maxErrorText is how many bytes of an error go out: it travels in a header,
// for which clients have little room, and may quote a request of megabytes.
const maxErrorText = 2 << 10

// shorten cuts the middle out of what is too long: an error begins with what
// was tried, and ends with why it failed.
func shorten(s string, to int) string {
	if len(s) <= to {
		return s
	}
	return strings.ToValidUTF8(s[:to/2], "") + " [...] " + strings.ToValidUTF8(s[len(s)-to/2:], "")
}
