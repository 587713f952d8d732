package daemon

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"time"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
)

// Profile implements adminv1.Server.
func (a admin) Profile(ctx context.Context, s adminv1.Stream) error {
	var req adminv1.ProfileRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return fmt.Errorf("profile the daemon: read the request: %w (%w)", err, errdefs.ErrInvalidArgument)
	}
	if req.Seconds < 1 || req.Seconds > adminv1.MaxProfileSeconds {
		return fmt.Errorf("profile the daemon for %d seconds: want 1 to %d: %w", req.Seconds, adminv1.MaxProfileSeconds, errdefs.ErrInvalidArgument)
	}
	var profile bytes.Buffer
	// The runtime takes one at a time, and refuses for no other reason.
	if err := pprof.StartCPUProfile(&profile); err != nil {
		return fmt.Errorf("profile the daemon: another profile is being taken: %w", errdefs.ErrPrecondition)
	}
	err := adminv1.Send(s, nil)
	if err == nil {
		err = await(ctx, s, time.Duration(req.Seconds)*time.Second)
	}
	pprof.StopCPUProfile()
	if err != nil {
		return fmt.Errorf("profile the daemon: %w", err)
	}
	_, err = adminv1.Writer{S: s}.Write(profile.Bytes())
	return err
}

// await returns at the end of the time, or when the client has closed its side,
// or with an error when the client is gone.
func await(ctx context.Context, s adminv1.Stream, d time.Duration) error {
	closed := make(chan struct{})
	go func() { // ends with the call at the latest
		_, _ = adminv1.Receive(s)
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(d):
	}
	return ctx.Err()
}
