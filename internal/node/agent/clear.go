package agent

import (
	"context"
	"errors"
	"fmt"

	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/volume"
)

// leftOver says that nothing is known of the pod but what a runtime has.
func (w *worker) leftOver() bool { return len(w.pod.Spec.Containers) == 0 }

// resume makes room for a worker that runs the pod anew: its sandboxes go, and its volumes
// stay, as after a reboot.
func (w *worker) resume(ctx context.Context) error {
	err := w.removeSandboxes(ctx)
	if err == nil && w.record.Ran {
		r := w.record
		r.Ran = false // it is to run once more
		err = w.a.ledger.Write(w.uid, r)
	}
	if err != nil {
		return fmt.Errorf("run the pod again: %w", err)
	}
	w.end()
	w.resumes = true
	return nil
}

// clear removes all that there is of a pod that has ended.
func (w *worker) clear(ctx context.Context) error {
	err := w.removeSandboxes(ctx)
	if err == nil { // what runs in it the runtime ends in better order
		err = w.a.cfg.Cgroups.Remove(ctx, w.uid)
	}
	if err == nil { // what still runs may still use its volumes
		err = volume.Remove(ctx, w.dirs, w.a.cfg.CSI)
	}
	if err == nil { // and after that nothing of it belongs to its users any more
		err = w.a.ids.Free(w.uid)
	}
	if err == nil { // what is left the next agent has to find
		err = w.a.ledger.Remove(w.uid)
	}
	if err != nil {
		return fmt.Errorf("remove the pod: %w", err)
	}
	w.gone = true
	w.a.stats.Probes.Forget(string(w.uid))
	w.a.cfg.Gone(w.pod)
	return nil
}

// removeSandboxes removes all that the runtime has of a pod that has ended. Of a left-over
// the containers have to be ended first: there was no plan for it.
func (w *worker) removeSandboxes(ctx context.Context) error {
	boxes := w.view.Old
	if w.view.Box != nil {
		boxes = append(boxes, w.view.Box.GetId())
	}
	var errs []error
	for _, id := range boxes {
		if !w.leftOver() {
			errs = append(errs, removal.RemoveSandbox(ctx, w.a.cfg.Runtime, id))
			continue
		}
		grace := removal.GraceOf(w.view.Box.GetAnnotations())
		errs = append(errs, removal.RemovePod(ctx, w.a.cfg.Runtime, removal.Pod{ID: id, By: removal.In(grace)}))
	}
	for _, c := range w.view.Containers {
		c.Care.Abandon()
	}
	w.tend.Wait()
	return errors.Join(errs...)
}
