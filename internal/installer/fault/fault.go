// Package fault gives an error of the installer its reason: one word for programs
// beside the sentence for people.
package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/errdefs"
)

// Error is an error with a reason.
type Error struct {
	Reason payload.Reason
	Err    error
}

// Error is the sentence.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap is the error without the reason.
func (e *Error) Unwrap() error { return e.Err }

// New is fmt.Errorf with a reason.
func New(reason payload.Reason, format string, args ...any) error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Of is the reason of an error: the one that it was given, or what its cause tells.
func Of(err error) payload.Reason {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return payload.NoSpace
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return payload.ReadOnlyTarget
	case errors.Is(err, errdefs.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return payload.RuntimeUnavailable
	case errors.Is(err, errdefs.ErrInvalidArgument):
		return payload.ConfigurationProblem
	case errors.Is(err, errdefs.ErrPrecondition):
		return payload.Conflict
	}
	return payload.InternalError
}
