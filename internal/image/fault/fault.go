// Package fault gives what goes wrong with images a text for people and a kind
// of ours. What a pull or an import says of it is theirs.
package fault

import (
	"errors"
	"syscall"

	cerrdefs "github.com/containerd/errdefs"

	"fairlead.run/internal/errdefs"
)

// failure shows no cause: those from the libraries repeat themselves too much.
type failure struct {
	text  string
	kind  error
	cause error
}

// New returns an error with a text for people; its kind and cause are for
// errors.Is.
func New(text string, kind, cause error) error { return &failure{text, kind, cause} }

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return []error{f.kind, f.cause} }

// IsNotFound knows what containerd's libraries say.
func IsNotFound(err error) bool { return cerrdefs.IsNotFound(err) }

// Local gives an error of containerd's libraries about this node's store one of
// our kinds.
func Local(err error) error {
	switch {
	case err == nil, IsOurs(err):
		return err
	case cerrdefs.IsNotFound(err):
		return New(err.Error(), errdefs.ErrNotFound, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return New(err.Error(), errdefs.ErrExhausted, err)
	}
	return err
}

var ourKinds = []error{
	errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrInvalidArgument, errdefs.ErrPrecondition,
	errdefs.ErrUnavailable, errdefs.ErrExhausted, errdefs.ErrUnimplemented, errdefs.ErrDeadline, errdefs.ErrInternal,
}

// IsOurs says whether an error has one of our kinds.
func IsOurs(err error) bool {
	for _, k := range ourKinds {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}
