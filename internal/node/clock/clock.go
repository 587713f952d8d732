// Package clock tells when the system's clock was set, or the machine slept: timers go by
// another clock, which nobody sets and which stands still meanwhile, so that what was to be
// done at a time would be done too late.
package clock

import (
	"context"
	"time"
)

const (
	every     = 20 * time.Second
	tolerance = 2 * time.Second // clocks are slewed, too
)

// reading is what both clocks say at one moment.
type reading struct {
	wall  time.Time     // of the clock that may be set
	since time.Duration // by the other one, from any moment on
}

// Watch calls jumped soon after the clock was set by more than some seconds, until ctx ends.
func Watch(ctx context.Context, jumped func()) error {
	start := time.Now()
	read := func() reading {
		now := time.Now()
		return reading{now.Round(0), now.Sub(start)}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := read(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := read()
		if apart(last, now) {
			jumped()
		}
		last = now
	}
}

// apart says that the clocks have not gone on alike between two readings.
func apart(before, after reading) bool {
	by := after.wall.Sub(before.wall) - (after.since - before.since)
	return by.Abs() > tolerance
}

// Over says that a time has come by either clock, where it came from time.Now and was not read
// from anywhere: what is only good for a while is no longer good if the machine has slept.
func Over(at, now time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}
