package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// TestApart takes what a clock is slewed by for no jump, and a machine that has slept for one.
func TestApart(t *testing.T) {
	zero := reading{time.Unix(1_000_000, 0), time.Hour}
	for name, tt := range map[string]struct {
		wall, since time.Duration
		want        bool
	}{
		"alike":           {every, every, false},
		"slewed":          {every + time.Second, every, false},
		"set forward":     {time.Hour, every, true},
		"set back":        {-time.Hour, every, true},
		"asleep":          {8 * time.Hour, every, true},
		"stopped, awake":  {time.Hour, time.Hour, false},
		"set back, a bit": {every - 3*time.Second, every, true},
	} {
		if got := apart(zero, reading{zero.wall.Add(tt.wall), zero.since + tt.since}); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestWatch calls nobody as long as both clocks go on alike.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := Watch(ctx, func() { t.Error("it takes the clock for one that was set") }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// asleep is a time as time.Now gives it after the machine has slept: the clock of the system has
// gone on meanwhile, and the one of timers has not.
func asleep(now time.Time, seconds uint64) time.Time {
	wall := (*uint64)(unsafe.Pointer(&now)) // the seconds above 30 bits of nanoseconds
	*wall += seconds << 30
	return now
}

// TestSlept has a time come while the machine sleeps.
func TestSlept(t *testing.T) {
	now := time.Now()
	at, after := now.Add(30*time.Minute), asleep(now, 3600)
	if after.Sub(now) != 0 || after.Round(0).Sub(now.Round(0)) != time.Hour {
		t.Fatalf("the clocks are %s and %s further", after.Sub(now), after.Round(0).Sub(now.Round(0)))
	}
	if Over(at, now) || !Over(at, after) {
		t.Errorf("%s has come at %s: %t, and after an hour asleep: %t", at, now, Over(at, now), Over(at, after))
	}
}

// TestOver wants a time to have come if either clock says so.
func TestOver(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		at   time.Time
		want bool
	}{
		{now, true},
		{now.Add(-time.Second), true},
		{now.Add(time.Second), false},
		{now.Round(0).Add(-time.Second), true}, // without the clock that nobody sets
		{now.Round(0).Add(time.Second), false},
	} {
		if got := Over(tt.at, now); got != tt.want {
			t.Errorf("%s: %t", tt.at, got)
		}
	}
}
