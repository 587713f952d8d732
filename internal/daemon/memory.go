package daemon

import (
	"context"
	"time"
)

// gcPercent is how much memory may grow before garbage is collected. Half of what
// is in use is some MB, so collecting twice as often as Go does by itself costs
// next to nothing, and the daemon is smaller on every node.
const gcPercent = 50

// restful is how long nothing has to end for the daemon to be at rest.
const restful = 5 * time.Second

// rest calls each time when the daemon has come to rest. busy gets an element
// with the end of an operation.
func rest(ctx context.Context, busy <-chan struct{}, each func()) {
	timer := time.NewTimer(restful)
	defer timer.Stop()
	for {
		select {
		case <-busy:
			timer.Reset(restful)
		case <-timer.C:
			each()
		case <-ctx.Done():
			return
		}
	}
}
