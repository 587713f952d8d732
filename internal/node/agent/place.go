package agent

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/ledger"
)

// findPlace asks which handler runs the pod. A pod that has been refused has failed. One
// that was found running stays where it is, whatever has become of its class.
func (w *worker) findPlace(ctx context.Context) error {
	if w.view.Box != nil && w.record.Place != nil {
		w.settleAt(placementOf(w.record.Place))
		return nil
	}
	place, err := w.a.cfg.Place(ctx, w.pod)
	var refusal *Refusal
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && w.view.Box != nil: // whoever has made the sandbox has not written down where
		w.settleAt(Placement{Handler: w.view.Box.GetRuntimeHandler(), Overhead: w.pod.Spec.Overhead})
		return nil
	case errors.As(err, &refusal):
		w.refused, w.stray = refusal, refusal.Again
		w.event(corev1.EventTypeWarning, refusal.Reason, refusal.Message)
		return nil
	case err != nil:
		return w.told("FailedCreatePodSandBox", err)
	}
	r := w.record
	r.Place = &ledger.Place{
		Class: place.Class, Handler: place.Handler, Overhead: place.Overhead,
		RecursiveReadOnlyMounts: place.Features.GetRecursiveReadOnlyMounts(), UserNamespaces: place.Features.GetUserNamespaces(),
	}
	if err := w.a.ledger.Write(w.uid, r); err != nil {
		return err
	}
	w.record = r
	for _, n := range place.Notes {
		w.event(corev1.EventTypeNormal, "RuntimeClass", n)
	}
	w.settleAt(place)
	return nil
}

// placementOf is the place that is remembered.
func placementOf(p *ledger.Place) Placement {
	return Placement{Class: p.Class, Handler: p.Handler, Overhead: p.Overhead, Features: &runtimeapi.RuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: p.RecursiveReadOnlyMounts, UserNamespaces: p.UserNamespaces,
	}}
}

// settleAt has the pod run there.
func (w *worker) settleAt(place Placement) {
	w.place, w.stage = place, placed
	w.pod = w.counted(w.given)
	w.spec.Pod, w.spec.CgroupParent = w.pod, w.a.cfg.Cgroups.Parent(w.pod)
	w.spec.Overhead, w.spec.Features = place.Overhead, place.Features
}
