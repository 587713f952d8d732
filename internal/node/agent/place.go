package agent

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/source"
)

// findPlace asks which handler runs the pod. A pod that has been refused has failed. One
// that was found running stays where it is, whatever has become of its class.
func (w *worker) findPlace(ctx context.Context) error {
	if w.view.Box != nil && w.record.Place != nil {
		w.spec.Userns = podspec.UserNamespace(w.record.Place.HostIDs)
		w.settleAt(placementOf(w.record.Place))
		return nil
	}
	place, err := w.a.cfg.Place(ctx, w.pod)
	var refusal *Refusal
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && w.view.Box != nil: // whoever has made the sandbox has not written down where
		w.spec.Userns = w.view.Box.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions()
		w.settleAt(Placement{Handler: w.view.Box.GetRuntimeHandler(), Overhead: w.pod.Spec.Overhead})
		return nil
	case errors.As(err, &refusal):
		w.refused, w.stray = refusal, refusal.Again
		w.event(corev1.EventTypeWarning, refusal.Reason, refusal.Message)
		return nil
	case err != nil:
		return w.told("FailedCreatePodSandBox", err)
	}
	ids, err := w.takeIDs(ctx, place)
	if err != nil || w.refused != nil {
		return err
	}
	r := w.record
	r.Place = &ledger.Place{
		Class: place.Class, Handler: place.Handler, Overhead: place.Overhead,
		RecursiveReadOnlyMounts: place.Features.GetRecursiveReadOnlyMounts(), UserNamespaces: place.Features.GetUserNamespaces(),
		HostIDs: ids,
	}
	if err := w.a.ledger.Write(w.uid, r); err != nil {
		return err
	}
	w.record = r
	w.spec.Userns = podspec.UserNamespace(ids)
	for _, n := range place.Notes {
		w.event(corev1.EventTypeNormal, "RuntimeClass", n)
	}
	w.settleAt(place)
	return nil
}

// noUserNamespaces is why a pod with hostUsers false has failed that cannot have that.
const noUserNamespaces = "UserNamespacesNotSupported"

// takeIDs gives a pod with a user namespace ids of the node, which it has until nothing is
// left of it; 0 for one without. A handler that cannot make one would run it as the node's
// root, so that the pod is refused.
func (w *worker) takeIDs(ctx context.Context, place Placement) (uint32, error) {
	if !podspec.OwnUsers(w.pod) {
		return 0, nil
	}
	if !place.Features.GetUserNamespaces() {
		handler := "the runtime's default handler"
		if place.Handler != "" {
			handler = "the handler " + place.Handler
		}
		w.refused = &Refusal{Reason: noUserNamespaces, Again: source.Of(w.pod) != source.API, Message: "the pod asks for a user namespace (hostUsers: false), which " +
			handler + " cannot make on this node; name a RuntimeClass whose handler can, or leave that field out"}
		w.stray = w.refused.Again
		w.event(corev1.EventTypeWarning, w.refused.Reason, w.refused.Message)
		return 0, nil
	}
	ids, err := w.a.ids.Take(ctx, w.uid)
	if err != nil {
		return 0, w.told("FailedCreatePodSandBox", err)
	}
	return ids, nil
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
