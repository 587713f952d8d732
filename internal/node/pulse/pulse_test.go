package pulse

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/errdefs"
)

// TestHealthy takes a loop that waits for one that goes on, and one that is at something
// for too long for one that is stuck.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ctx, poked := &Pulse{}, t.Context(), make(chan struct{})
		if err := p.Healthy(); err != nil {
			t.Errorf("it has not begun: %v", err)
		}
		p.Beat()
		go func() { poked <- struct{}{} }()
		if err := p.Await(ctx, poked); err != nil {
			t.Error(err)
		}
		time.Sleep(StuckAfter)
		if err := p.Healthy(); err != nil {
			t.Errorf("it may take that long: %v", err)
		}
		time.Sleep(time.Second)
		if err := p.Healthy(); !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "for 2m1s") {
			t.Errorf("it is stuck: %v", err)
		}
		within, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- p.Await(within, poked) }()
		time.Sleep(30 * time.Minute)
		if err := p.Healthy(); err != nil {
			t.Errorf("it waits: %v", err)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestClock goes by a clock that nobody sets: one that is set forward would make a node
// unhealthy whose agent goes on.
func TestClock(t *testing.T) {
	p := &Pulse{}
	p.Beat()
	if at := p.last.Load().String(); !strings.Contains(at, " m=") {
		t.Errorf("the last beat was at %s, which is a time of the clock on the wall alone", at)
	}
}
