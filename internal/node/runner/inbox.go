package runner

import (
	"context"
	"time"
)

// inbox is what a worker is told while it may be busy. Nobody waits for it.
type inbox struct {
	listings chan listing  // the newest
	woken    chan struct{} // a hook or probe has something to tell
	acted    time.Time     // when the worker was last done with something
}

func newInbox() inbox {
	return inbox{listings: make(chan listing, 1), woken: make(chan struct{}, 1)}
}

// wake has the worker look at its pod.
func (in *inbox) wake() { poke(in.woken) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// offer replaces a listing that was not read yet.
func (in *inbox) offer(l listing) {
	select {
	case <-in.listings:
	default:
	}
	in.listings <- l // there is room: only one goroutine offers
}

// run watches over a pod that was started, until ctx ends.
func (w *worker) run(ctx context.Context) error {
	for {
		var l listing
		var err error
		select {
		case <-ctx.Done():
			return nil
		case l = <-w.in.listings:
			if l.taken.Before(w.in.acted) {
				continue // it does not know what was done meanwhile
			}
		case <-w.in.woken:
			if w.current().Phase != Running {
				continue
			}
			l, err = w.r.list(ctx, w.box.ID)
		}
		if err == nil {
			err = w.reconcile(ctx, l)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.in.acted = time.Now()
		poke(w.r.changed)
	}
}
