package agent

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/errtext"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
)

// resizing is how far a change of what a pod may have has come (KEP-1287). The spec asks,
// the ledger has what was given, and the runtime what is in force.
type resizing struct {
	pending *corev1.PodCondition // why it was not given; nil if it was
	loose   bool                 // the pod's cgroup has the larger of before and after
	failed  string               // why it is not in force
}

// grant gives the pod what it asks for by now, if the node has that: in the ledger, and
// its cgroup what both sides need, until the containers have changed.
func (w *worker) grant(ctx context.Context) error {
	want := capacity.AllocationOf(w.given)
	had := *w.record.Allocated
	if want.Equal(had) {
		w.resizing.pending = nil
		w.guest.Keep()
		return nil
	}
	asks := *w.given
	asks.Spec.Overhead = w.pod.Spec.Overhead
	if !w.fits(&asks) {
		return nil
	}
	w.record.Allocated = &want
	if err := w.a.ledger.Write(w.uid, w.record); err != nil {
		w.record.Allocated = &had
		return err
	}
	w.pod = w.counted(w.given)
	w.spec.Pod = w.pod
	w.resizing = resizing{loose: true}
	w.event(corev1.EventTypeNormal, "ResizeStarted", "Pod resize started")
	if err := w.a.cfg.Cgroups.Ensure(ctx, had.Larger(want).Of(w.pod)); err != nil {
		w.resizing.failed = errtext.Of(err)
		return err
	}
	return nil
}

// fits asks whether there is room for what the pod asks for, which it has from then on.
func (w *worker) fits(asks *corev1.Pod) bool {
	reason, message := w.guest.Resize(asks)
	if reason == "" {
		return true
	}
	now := &corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	if was := w.resizing.pending; was == nil || was.Reason != reason || was.Message != message {
		w.event(corev1.EventTypeWarning, "Resize"+reason, message)
	}
	w.resizing.pending = now
	return false
}

// tighten gives the cgroup of a pod exactly what its containers have by now.
func (w *worker) tighten(ctx context.Context, p plan.Plan) error {
	if !w.resizing.loose {
		return nil
	}
	err := w.a.cfg.Cgroups.Ensure(ctx, w.pod)
	if err == nil {
		err = w.resizeSandbox(ctx)
	}
	if err != nil {
		w.resizing.failed = errtext.Of(err)
		w.tell(p)
		return fmt.Errorf("resize the pod: %w", err)
	}
	w.resizing.loose, w.resizing.failed = false, ""
	w.event(corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed")
	w.tell(p)
	poke(w.a.poked) // it may have less now, which others wait for
	return nil
}

// resizeSandbox tells the runtime what the containers have together.
func (w *worker) resizeSandbox(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	_, err := w.a.cfg.Runtime.UpdatePodSandboxResources(ctx, podspec.ResizeSandbox(w.spec, w.view.Box.GetId()))
	if status.Code(err) == codes.Unimplemented {
		return nil // a runtime that is older than that call needs none
	}
	return err
}

// conditions are those that no container has to do with.
func (w *worker) conditions(p plan.Plan) []corev1.PodCondition {
	var out []corev1.PodCondition
	if w.refused != nil && w.refused.Disrupts != "" {
		out = append(out, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: w.refused.Disrupts,
		})
	}
	if w.resizing.pending != nil {
		out = append(out, *w.resizing.pending)
	}
	at := w.resizing.loose
	for _, a := range p.Actions {
		at = at || a.Verb == plan.Resize
	}
	if at {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if w.resizing.failed != "" {
			c.Reason, c.Message = corev1.PodReasonError, w.resizing.failed
		}
		out = append(out, c)
	}
	return out
}
