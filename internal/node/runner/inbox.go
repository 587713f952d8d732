package runner

import (
	"context"
	"time"
)

// inbox is what a worker is told while it may be busy. Nobody waits for it.
type inbox struct {
	woken chan struct{} // something has happened to the pod, or to a hook or probe of it
	retry time.Duration // the last pause before something that had failed; zero if it has not
}

func newInbox() inbox { return inbox{woken: make(chan struct{}, 1)} }

// wake has the worker look at its pod.
func (in *inbox) wake() { poke(in.woken) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run watches over a pod that was started, until ctx ends. It looks when it is
// woken, and when its last plan said so; a pod to which nothing happens costs
// nothing.
func (w *worker) run(ctx context.Context) error {
	w.in.wake()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.in.woken:
		case <-timer.C:
		}
		again, err := w.reconcile(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		timer.Stop()
		if !again.IsZero() {
			timer.Reset(time.Until(again))
		}
		poke(w.r.changed)
	}
}
