package adminv1

import (
	"context"

	"google.golang.org/grpc"
)

// RemoveRequest is the only frame that Remove is asked with.
type RemoveRequest struct {
	Ref string `json:"ref"` // a name: it goes alone while the image has others; or an id: the image goes with all
}

// RemoveReply is the only frame that Remove answers. It is empty if there was
// no such image.
type RemoveReply struct {
	Untagged []string `json:"untagged,omitempty"` // the names that went
	Removed  string   `json:"removed,omitempty"`  // the id of the image, if it went too
}

// Remove asks a daemon to remove an image or a name of it.
func Remove(ctx context.Context, conn grpc.ClientConnInterface, req RemoveRequest) (RemoveReply, error) {
	var reply RemoveReply
	s, err := Open(ctx, conn, "Remove")
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
