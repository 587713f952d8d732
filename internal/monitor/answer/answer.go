// Package answer is how the inner process answers a request: a body and
// descriptors, or an error by its kind.
package answer

import (
	"encoding/json"
	"errors"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/wire"
)

// Send answers a request: with a body, or with the error that it failed with.
// The descriptors stay the caller's.
func Send(conn *wire.Conn, body any, failed error, fds ...int) error {
	var reply monitorv1.Reply
	if failed != nil {
		reply.Error = Error(failed)
	} else if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reply.Body = data
	}
	return conn.Send(reply, fds...)
}

// kinds maps errors to what the wire calls them, the most telling first.
var kinds = []struct {
	err  error
	kind monitorv1.Kind
}{
	{errdefs.ErrNotFound, monitorv1.KindNotFound},
	{errdefs.ErrAlreadyExists, monitorv1.KindAlreadyExists},
	{errdefs.ErrInvalidArgument, monitorv1.KindInvalid},
	{errdefs.ErrPrecondition, monitorv1.KindPrecondition},
	{errdefs.ErrDeadline, monitorv1.KindDeadline},
	{errdefs.ErrExhausted, monitorv1.KindExhausted},
	{errdefs.ErrUnimplemented, monitorv1.KindUnimplemented},
	{errdefs.ErrUnavailable, monitorv1.KindUnavailable},
	{unix.ENOSPC, monitorv1.KindExhausted},
	{unix.EMFILE, monitorv1.KindExhausted},
	{unix.EAGAIN, monitorv1.KindExhausted},
}

// Error is what the wire says of an error.
func Error(err error) *monitorv1.Error {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return &monitorv1.Error{Kind: k.kind, Message: err.Error()}
		}
	}
	return &monitorv1.Error{Kind: monitorv1.KindInternal, Message: err.Error()}
}
