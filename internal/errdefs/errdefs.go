// Package errdefs names the kinds of failure that cross package borders.
//
// A driver wraps one of these with %w; the CRI server maps each to one gRPC
// status code, and the command line to one exit code. It is not a place for
// error values that only one package looks at.
package errdefs

import "errors"

// The kinds. Compare with errors.Is.
var (
	// ErrNotFound says that the named object does not exist here.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists says that the name or id is taken by another object.
	ErrAlreadyExists = errors.New("already exists")
	// ErrInvalidArgument says that the request itself is wrong and will stay so.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrPrecondition says that the object is in a state that forbids the step.
	ErrPrecondition = errors.New("not possible in this state")
	// ErrUnavailable says that something needed is away for now; a retry may help.
	ErrUnavailable = errors.New("unavailable")
	// ErrExhausted says that disk, addresses, memory or another quota ran out.
	ErrExhausted = errors.New("resource exhausted")
	// ErrUnimplemented says that this handler or host cannot do it at all.
	ErrUnimplemented = errors.New("not supported")
	// ErrDeadline says that the step took longer than it was allowed to.
	ErrDeadline = errors.New("deadline exceeded")
	// ErrInternal says that Fairlead or its record is at fault.
	ErrInternal = errors.New("internal error")
)
