package adminv1

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
)

// Handler is what Fairlead says of a runtime handler beyond the CRI's Status.
type Handler struct {
	Name  string `json:"name"`
	State string `json:"state"` // "Ready", "Failed", "Unverified" or "Draining"
	// VerifiedAt is when the last trial that counts ended.
	VerifiedAt time.Time `json:"verifiedAt,omitzero"`
	// TrialStartMS is how long the container on trial took to start, in milliseconds.
	TrialStartMS float64 `json:"trialStartMs,omitempty"`
	// StartP50MS is the median start of a pod with one container, in milliseconds,
	// of those that were started lately; zero where there was none.
	StartP50MS float64 `json:"startP50Ms,omitempty"`
	// OverheadBytes is the memory of what the runtime keeps beside a container, as
	// the trial found it; Overhead is what was measured of pods, if somebody has
	// asked for that.
	OverheadBytes int64     `json:"overheadBytes"`
	Overhead      *Overhead `json:"overhead,omitempty"`
	Features      []string  `json:"features"`
	Pods          int       `json:"pods"` // that use it
}

// HandlersReply is the only frame that Handlers answers.
type HandlersReply struct {
	Handlers []Handler `json:"handlers"`
}

// VerifyRequest is the only frame that VerifyHandler is asked with.
type VerifyRequest struct {
	Name string `json:"name"` // empty for the default
}

// VerifyEvent is a frame of the answers of VerifyHandler and ChangeHandler. The last one, and no other,
// has Done.
type VerifyEvent struct {
	Step string `json:"step,omitempty"` // that begins now, for people
	Done bool   `json:"done,omitempty"`
	// Of the last: what the trial found, and the state of the handler after it.
	Works   bool     `json:"works,omitempty"`
	Reason  string   `json:"reason,omitempty"` // why it does not work
	Handler *Handler `json:"handler,omitempty"`
}

// ChangeRequest is the only frame that ChangeHandler is asked with.
type ChangeRequest struct {
	Verb     string   `json:"verb"` // "add", "set" or "rm"
	Name     string   `json:"name"`
	Settings []string `json:"settings,omitempty"` // KEY=VALUE
}

// Handlers asks a daemon for its handlers.
func Handlers(ctx context.Context, conn grpc.ClientConnInterface) ([]Handler, error) {
	s, err := Open(ctx, conn, "Handlers")
	if err != nil {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	var reply HandlersReply
	err = ReceiveJSON(s, &reply)
	return reply.Handlers, err
}

// VerifyHandler has a daemon try a handler. It calls step for each step as it
// begins, and returns the last event.
func VerifyHandler(ctx context.Context, conn grpc.ClientConnInterface, req VerifyRequest, step func(string)) (VerifyEvent, error) {
	return follow(ctx, conn, "VerifyHandler", req, step)
}

// ChangeHandler has a daemon add, change or remove a handler, in the same way.
func ChangeHandler(ctx context.Context, conn grpc.ClientConnInterface, req ChangeRequest, step func(string)) (VerifyEvent, error) {
	return follow(ctx, conn, "ChangeHandler", req, step)
}

func follow(ctx context.Context, conn grpc.ClientConnInterface, method string, req any, step func(string)) (VerifyEvent, error) {
	var e VerifyEvent
	s, err := Open(ctx, conn, method)
	if err != nil {
		return e, err
	}
	// io.EOF says that the server is done; its answer says why.
	if err := SendJSON(s, req); err != nil && !errors.Is(err, io.EOF) {
		return e, err
	}
	for !e.Done {
		e = VerifyEvent{}
		if err := ReceiveJSON(s, &e); err != nil {
			return e, err
		}
		if e.Step != "" {
			step(e.Step)
		}
	}
	return e, nil
}
