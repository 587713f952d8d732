package adminv1

import (
	"context"

	"google.golang.org/grpc"
)

// FsckRequest is the only frame that Fsck is asked with.
type FsckRequest struct {
	Repair        bool `json:"repair,omitempty"`
	VerifyContent bool `json:"verifyContent,omitempty"` // read every blob
}

// FsckReply is the only frame that Fsck answers.
type FsckReply struct {
	Findings []Finding `json:"findings"`
	// Blind says what could not be looked at, and why.
	Blind []string `json:"blind,omitempty"`
	// Busy are pods that were changed all the while, so that nothing is said of them.
	Busy []string `json:"busy,omitempty"`
}

// Finding is one thing that does not agree with the records.
type Finding struct {
	Code       string `json:"code"`            // "mount-leftover", ...
	Object     string `json:"object"`          // the path or name of the thing
	Owner      string `json:"owner,omitempty"` // id of the pod or container that it is of
	Pod        string `json:"pod,omitempty"`   // namespace/name, of a pod on record
	PodID      string `json:"podID,omitempty"`
	Problem    string `json:"problem"`    // for people
	Action     string `json:"action"`     // what a repair does, or else what helps
	Repairable bool   `json:"repairable"` // whether a repair can do something
	Repaired   bool   `json:"repaired"`
	Error      string `json:"error,omitempty"` // why it was not repaired
}

// Left are the findings that still stand.
func (r FsckReply) Left() (left []Finding) {
	for _, f := range r.Findings {
		if !f.Repaired {
			left = append(left, f)
		}
	}
	return left
}

// Fsck asks a daemon to audit its node.
func Fsck(ctx context.Context, conn grpc.ClientConnInterface, req FsckRequest) (FsckReply, error) {
	var reply FsckReply
	s, err := Open(ctx, conn, "Fsck")
	if err != nil {
		return reply, err
	}
	if err := SendJSON(s, req); err != nil {
		return reply, err
	}
	if err := s.CloseSend(); err != nil {
		return reply, err
	}
	return reply, ReceiveJSON(s, &reply)
}
