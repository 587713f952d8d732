package runner

import (
	"context"
	"errors"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/volume"
)

// remove stops and removes the worker's pod, and what was prepared for it.
func (w *worker) remove(ctx context.Context, now <-chan struct{}) error {
	errs := []error{w.removeLost(ctx)}
	if id := w.current().ID; id != "" {
		how := removal.Pod{ID: id, By: removal.In(podspec.Grace(w.spec.Pod))}
		defer hurry(how.By, now)()
		// Containers end in the order of the plan, sidecars last. What that leaves
		// ends with the pod.
		if err := w.performBy(ctx, plan.Next(w.input("the run has ended")), how.By); err != nil {
			how.By.Sooner(0)
		}
		errs = append(errs, removal.RemovePod(ctx, w.r.cfg.Endpoint.Runtime, how))
	}
	w.endCare()
	w.endLogs()
	if errors.Join(errs...) == nil { // what still runs may still use its volumes
		errs = append(errs, volume.Remove(ctx, w.dirs, nil))
	}
	if err := errors.Join(errs...); err != nil {
		return w.fail("remove it", err)
	}
	w.change(func(s *Status) { s.ID, s.Ready = "", 0 })
	return nil
}

// hurry ends the time of a deadline once now is closed, until what it returns is
// called.
func hurry(by *removal.Deadline, now <-chan struct{}) (end func()) {
	select {
	case <-now:
		by.Sooner(0)
		return func() {}
	default:
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-now:
			by.Sooner(0)
		case <-done:
		}
	}()
	return func() { close(done) }
}
