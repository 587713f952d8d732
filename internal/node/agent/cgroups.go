package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/errtext"
)

// Cgroups keeps the cgroups that pods are in. All may be called for different pods at
// the same time, and as often as one likes.
type Cgroups interface {
	// Parent is what a runtime is told about where the containers of a pod go.
	Parent(*corev1.Pod) string
	// Ensure makes the cgroup of a pod, or gives it what the pod may use now.
	Ensure(context.Context, *corev1.Pod) error
	// Remove ends what still runs in the cgroup of a pod, and removes it. One without a
	// cgroup is no error.
	Remove(context.Context, types.UID) error
}

// noCgroups leaves them to the runtime.
type noCgroups struct{}

func (noCgroups) Parent(*corev1.Pod) string                 { return "" }
func (noCgroups) Ensure(context.Context, *corev1.Pod) error { return nil }
func (noCgroups) Remove(context.Context, types.UID) error   { return nil }

// counted is a pod as the node accounts for it: with what it was let in with, and with
// the overhead of its class and the containers that are done, also where no API server has
// written that down.
func (w *worker) counted(p *corev1.Pod) *corev1.Pod {
	if w.record.Allocated != nil {
		p = w.record.Allocated.Of(p)
	}
	if len(w.record.Done) > 0 && len(p.Status.ContainerStatuses) == 0 {
		own := *p
		own.Status.ContainerStatuses = w.record.Done
		p = &own
	}
	if len(w.place.Overhead) == 0 || len(p.Spec.Overhead) > 0 {
		return p
	}
	out := *p
	out.Spec.Overhead = w.place.Overhead
	return &out
}

// house makes the pod's cgroup. It is there already for a pod that was found.
func (w *worker) house(ctx context.Context) error {
	w.vacant = false
	err := w.a.cfg.Cgroups.Ensure(ctx, w.pod)
	if err != nil && ctx.Err() == nil {
		w.event(corev1.EventTypeWarning, "FailedCreatePodContainer", "The cgroup of the pod cannot be made, so that it is not started, which is tried again; see whether the node's cgroups are mounted for writing, and are those of --cgroup-driver and --cgroup-root: "+errtext.Of(err)+hostpath.Advice(err))
	}
	return err
}
