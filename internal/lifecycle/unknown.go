package lifecycle

import (
	"errors"
	"fmt"

	"fairlead.run/internal/errdefs"
)

// unknownError says that no record has the id. It is a type of its own because
// to stop or remove what nobody knows is no error, while a driver that does not
// find something it needs has failed.
type unknownError struct{ kind, id string }

func (e *unknownError) Error() string {
	return fmt.Sprintf("%s %q: %v", e.kind, e.id, errdefs.ErrNotFound)
}

func (e *unknownError) Unwrap() error { return errdefs.ErrNotFound }

func unknownPod(id string) error { return &unknownError{"pod", id} }

func unknownContainer(id string) error { return &unknownError{"container", id} }

// ignoreUnknown makes a stop or a removal idempotent: what nobody knows is gone
// already.
func ignoreUnknown(err error) error {
	var unknown *unknownError
	if errors.As(err, &unknown) {
		return nil
	}
	return notGone(err)
}

// notGone is err of a stop or a removal, without a kind that would tell the
// caller that the pod or the container does not exist: a kubelet takes that for
// success. Only an unknownError may say so.
func notGone(err error) error {
	var unknown *unknownError
	if errors.Is(err, errdefs.ErrNotFound) && !errors.As(err, &unknown) {
		return failedError{err}
	}
	return err
}

// failedError is everything that the error in it is, but errdefs.ErrNotFound.
type failedError struct{ err error }

func (e failedError) Error() string { return e.err.Error() }

func (e failedError) Is(target error) bool {
	return target != errdefs.ErrNotFound && (target == errdefs.ErrInternal || errors.Is(e.err, target))
}
