package nri

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// synchronize shows a plugin what there is. No event begins meanwhile, so
// everything is either shown or told.
func (d *Driver) synchronize(ctx context.Context, show adaptation.SyncCB) error {
	pods, containers := d.all()
	updates, err := show(ctx, pods, containers)
	if err != nil {
		return fmt.Errorf("show a plugin what there is: %w", err)
	}
	if len(updates) == 0 {
		return nil
	}
	// An operation on such a container may wait for the end of this call.
	d.updates.Go(func() { d.apply(ctx, updates) })
	return nil
}

// all are the pods that were not stopped, and the containers in them that did not
// end. What is Creating is there once plugins have heard of it.
func (d *Driver) all() (pods []*api.PodSandbox, containers []*api.Container) {
	for _, r := range d.host.Pods() {
		if r.Salvaged() || !d.shown(r.State, string(r.ID)) {
			continue
		}
		pods = append(pods, podView(r))
		for _, c := range r.Containers {
			if d.shown(c.State, string(c.ID)) {
				containers = append(containers, d.viewOf(r, c))
			}
		}
	}
	return pods, containers
}

func (d *Driver) shown(s pod.State, id string) bool {
	if s != pod.Creating {
		return s != pod.Exited
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, told := d.told[id]
	return told
}

// update is what a plugin wants of containers without having been asked.
func (d *Driver) update(ctx context.Context, updates []*api.ContainerUpdate) (failed []*api.ContainerUpdate, err error) {
	failed = d.apply(ctx, updates)
	if len(failed) > 0 {
		err = fmt.Errorf("limit %d of %d containers; the daemon's log says why: %w", len(failed), len(updates), errdefs.ErrPrecondition)
	}
	return failed, err
}
