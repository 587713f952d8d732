package lifecycle

import (
	"context"
	"errors"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
)

// The pauses after an observation that failed. A kubelet replaces a pod that is
// Unknown, so one that only failed for a moment, as while the monitor is being
// replaced, is not to count. What goes on to fail is looked at later.
const (
	lookPause = 50 * time.Millisecond
	lookLast  = 500 * time.Millisecond
)

// look observes, a few times if need be. That something is missing is no
// failure, and is not going to change.
func look(ctx context.Context, place string, observe func() pod.Seen) pod.Seen {
	for pause := lookPause; ; pause *= 3 {
		seen := observe()
		if err := failpoint.Hit(place); err != nil {
			seen = pod.Seen{Err: err}
		}
		if seen.Err == nil || errors.Is(seen.Err, errdefs.ErrNotFound) || pause > lookLast {
			return seen
		}
		select {
		case <-ctx.Done():
			return seen
		case <-time.After(pause):
		}
	}
}
