package criserver

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// Calls that can be slow end before their caller gives up; the others, and
// those without a deadline, get the context as it came.
func TestInTime(t *testing.T) {
	now := time.Now()
	s := &Server{now: func() time.Time { return now }}
	for _, tt := range []struct {
		method      string
		left, given time.Duration
	}{
		{"CreateContainer", 2 * time.Second, 1800 * time.Millisecond},
		{"PullImage", time.Minute, 59 * time.Second},
		{"ExecSync", time.Minute, time.Minute},
		{"ListContainers", time.Minute, time.Minute},
		{"StopPodSandbox", 0, 0},
	} {
		ctx := context.Background()
		if tt.left > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, now.Add(tt.left))
			defer cancel()
		}
		info := &grpc.UnaryServerInfo{FullMethod: "/runtime.v1.RuntimeService/" + tt.method}
		_, err := s.inTime(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
			deadline, ok := ctx.Deadline()
			if ok != (tt.given > 0) || (ok && deadline.Sub(now) != tt.given) {
				t.Errorf("%s with %s left is given %s", tt.method, tt.left, deadline.Sub(now))
			}
			return nil, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
