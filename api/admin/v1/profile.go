package adminv1

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
)

// MaxProfileSeconds is how long a profile may take: who asked may have
// forgotten it, and it grows.
const MaxProfileSeconds = 600

// ProfileRequest is the first frame of Profile.
type ProfileRequest struct {
	Seconds int `json:"seconds"` // 1 to MaxProfileSeconds
}

// Profiling is a profile that is being taken.
type Profiling struct{ s grpc.ClientStream }

// Profile has a daemon take a profile of its processor time. When it returns,
// that has begun. It ends with ctx.
func Profile(ctx context.Context, conn grpc.ClientConnInterface, req ProfileRequest) (*Profiling, error) {
	s, err := Open(ctx, conn, "Profile")
	if err != nil {
		return nil, err
	}
	// io.EOF says that the server is done; its answer says why.
	if err := SendJSON(s, req); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err := Receive(s); err != nil {
		return nil, err
	}
	return &Profiling{s}, nil
}

// Copy waits for the end of the profile and writes it.
func (p *Profiling) Copy(w io.Writer) error {
	_, err := io.Copy(w, &Reader{S: p.s})
	return err
}

// End has the profile end before its time.
func (p *Profiling) End() error { return p.s.CloseSend() }
