package agent

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/capacity"
)

var errBehind = errors.New("it waits for the end of the pods that make room for it")

// enter finds out whether the pod was let in, and remembers that. Without an error it
// was, or refused says why not.
func (w *worker) enter() error {
	a := w.guest.Answer()
	switch {
	case a.Refusal != nil:
		w.refused, w.stray = a.Refusal, a.Refusal.Again
		if a.News {
			w.event(corev1.EventTypeWarning, a.Refusal.Reason, a.Refusal.Message)
		}
		return nil
	case a.Waits:
		return errBehind
	case w.record.Allocated != nil:
		return nil
	}
	r, allocated := w.record, capacity.AllocationOf(w.given)
	r.Allocated = &allocated
	if err := w.a.ledger.Write(w.uid, r); err != nil {
		return err
	}
	w.record = r
	return nil
}

// RoomChanged has pods tried once more that were not let in, and may be later.
func (a *Agent) RoomChanged() { poke(a.poked) }

// end is told to whoever waits for the end of the pod.
func (w *worker) end() {
	w.guest.End()
	poke(w.a.poked) // there may be room for others now
}

// Await returns when a pod has ended for good, or is not here. The error is that of ctx
// if it ends before.
func (a *Agent) Await(ctx context.Context, uid types.UID) error {
	w := a.worker(uid)
	if w == nil {
		return nil
	}
	select {
	case <-w.guest.Over():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of pod %s: %w", w.name, context.Cause(ctx))
	}
}
