package images

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// The reasons of a container that waits for its image, as Kubernetes has them.
const (
	ErrImagePull              = "ErrImagePull"              // the pull failed
	ImagePullBackOff          = "ImagePullBackOff"          // it failed lately, and is not tried again yet
	ErrImageNeverPull         = "ErrImageNeverPull"         // the image is not here and must not be pulled
	InvalidImageName          = "InvalidImageName"          // it is no name of an image
	ImageInspectError         = "ImageInspectError"         // the runtime cannot say whether it is here
	RegistryUnavailable       = "RegistryUnavailable"       // the runtime did not reach the registry
	SignatureValidationFailed = "SignatureValidationFailed" // the runtime refuses its signature
)

// Error is why an image is not present.
type Error struct {
	Reason  string
	Message string
	// Until is when it may be tried again. It is zero where trying again does not
	// help before something else has changed.
	Until time.Time

	cause error
}

// Error is the reason and the message.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap is what the runtime or the folder of records has said.
func (e *Error) Unwrap() error { return e.cause }

// pullFailure finds out why a pull failed. Runtimes put the two reasons that
// they tell apart at the beginning of their message.
func pullFailure(image string, err error) *Error {
	text := describe(err)
	for _, known := range []struct {
		mark         error
		reason, what string
	}{
		{crierrors.ErrRegistryUnavailable, RegistryUnavailable, "the registry is unavailable"},
		{crierrors.ErrSignatureValidationFailed, SignatureValidationFailed, "its signature is not valid"},
	} {
		for _, e := range flatten(err) {
			rest, ok := strings.CutPrefix(describe(e), known.mark.Error())
			if !ok {
				continue
			}
			message := fmt.Sprintf("pull image %s: %s", image, known.what)
			if rest = strings.TrimLeft(rest, ": "); rest != "" {
				message += ": " + rest
			}
			return &Error{Reason: known.reason, Message: message, cause: err}
		}
	}
	if !strings.Contains(text, image) {
		text = "pull image " + image + ": " + text
	}
	return &Error{Reason: ErrImagePull, Message: text, cause: err}
}

// flatten are the errors that were joined.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// describe is an error without what gRPC puts before a message.
func describe(err error) string {
	var out []string
	for _, e := range flatten(err) {
		text := e.Error()
		inner := (interface {
			error
			GRPCStatus() *status.Status
		})(nil)
		if errors.As(e, &inner) && inner.GRPCStatus().Message() != "" {
			// What was wrapped around the status stays.
			text = strings.Replace(text, inner.Error(), inner.GRPCStatus().Message(), 1)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
