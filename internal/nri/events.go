package nri

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"fairlead.run/internal/pod"
)

// begin notes something that plugins have to agree on with a plugin that is just
// connecting: it is either in what that one is shown, or it hears of it. It says
// whether anybody listens; end must be called, and may be again.
func (d *Driver) begin(note func()) (listens bool, end func()) {
	block := d.nri.BlockPluginSync()
	if note != nil {
		d.mu.Lock()
		note()
		d.mu.Unlock()
	}
	return d.Active(), block.Unblock
}

// Pod tells of a pod. The error of PluginRunPod is a refusal.
func (d *Driver) Pod(ctx context.Context, e pod.PluginEvent, r *pod.Record) error {
	id, known := string(r.ID), false
	listens, end := d.begin(func() {
		switch e {
		case pod.PluginRunPod:
			d.told[id] = telling{}
		case pod.PluginStopPod:
			_, known = d.over[id]
			d.over[id] = struct{}{}
			delete(d.told, id)
		case pod.PluginRemovePod:
			delete(d.over, id)
			delete(d.told, id)
		}
	})
	defer end()
	if !listens || known {
		return nil
	}
	p := podView(r)
	var err error
	switch e {
	case pod.PluginRunPod:
		err = d.nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: p})
	case pod.PluginStopPod:
		if err = d.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p}); err != nil {
			d.untold(id)
		}
	case pod.PluginRemovePod:
		err = d.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: p})
	case pod.PluginUpdatedPod:
		err = d.nri.PostUpdatePodSandbox(ctx, &api.PostUpdatePodSandboxRequest{Pod: p})
	}
	return refused("pod "+r.ID.Short(), err)
}

// UpdatePod tells of limits that a pod is about to get. The error is a refusal.
func (d *Driver) UpdatePod(ctx context.Context, r *pod.Record, overhead, limits *pod.Resources) error {
	listens, end := d.begin(nil)
	defer end()
	if !listens {
		return nil
	}
	_, err := d.nri.UpdatePodSandbox(ctx, &api.UpdatePodSandboxRequest{
		Pod: podView(r), OverheadLinuxResources: toNRI(overhead), LinuxResources: toNRI(limits),
	})
	return refused("update pod "+r.ID.Short(), err)
}

// Container tells of a container. The error of PluginStart is a refusal.
func (d *Driver) Container(ctx context.Context, e pod.PluginEvent, r *pod.Record, c *pod.Container) error {
	switch e {
	case pod.PluginUnmade:
		return d.unmade(ctx, r, c)
	case pod.PluginStopped:
		return d.stopped(ctx, r, c)
	}
	id := string(c.ID)
	listens, end := d.begin(func() {
		switch e {
		case pod.PluginCreated:
			delete(d.told, id)
		case pod.PluginRemoved:
			delete(d.over, id)
		}
	})
	defer end()
	if !listens {
		return nil
	}
	p, v := podView(r), containerView(r, c, bundleSpec(c))
	var err error
	switch e {
	case pod.PluginCreated:
		err = d.nri.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: p, Container: v})
	case pod.PluginStart:
		err = d.nri.StartContainer(ctx, &api.StartContainerRequest{Pod: p, Container: v})
	case pod.PluginStarted:
		err = d.nri.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: p, Container: v})
	case pod.PluginUpdated:
		err = d.nri.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: p, Container: v})
	case pod.PluginRemoved:
		err = d.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: v})
	}
	return refused("container "+c.ID.Short(), err)
}

// stopped tells once of the end of a container. Who asks at the same time waits
// until plugins have heard of it.
func (d *Driver) stopped(ctx context.Context, r *pod.Record, c *pod.Container) error {
	unlock, err := d.ending.Lock(ctx, c.ID)
	if err != nil {
		return err
	}
	defer unlock()
	known := false
	listens, end := d.begin(func() {
		_, known = d.over[string(c.ID)]
		d.over[string(c.ID)] = struct{}{}
	})
	defer end()
	if !listens || known {
		return nil
	}
	answer, err := d.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: podView(r), Container: containerView(r, c, bundleSpec(c))})
	if err != nil {
		d.untold(string(c.ID))
	}
	end()
	unlock()
	d.apply(ctx, answer.GetUpdate())
	return refused("container "+c.ID.Short(), err)
}

// untold has the next caller tell of an end again that not all plugins have
// heard of, because one failed or the caller's time was up.
func (d *Driver) untold(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.over, id)
}

// unmade takes back the creation of a container that plugins have heard of.
func (d *Driver) unmade(ctx context.Context, r *pod.Record, c *pod.Container) error {
	known := false
	listens, end := d.begin(func() {
		_, known = d.told[string(c.ID)]
		delete(d.told, string(c.ID))
	})
	defer end()
	if !listens || !known {
		return nil
	}
	p, v := podView(r), containerView(r, c, nil)
	answer, err := d.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: v})
	if err == nil {
		err = d.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: v})
	}
	end()
	d.apply(ctx, answer.GetUpdate())
	return refused("container "+c.ID.Short(), err)
}

// Update asks what becomes of new limits of a container; nil is what was asked
// for. What plugins want of other containers is done by then.
func (d *Driver) Update(ctx context.Context, r *pod.Record, c *pod.Container, want *pod.Resources) (*pod.Resources, error) {
	listens, end := d.begin(nil)
	defer end()
	if !listens {
		return nil, nil
	}
	answer, err := d.nri.UpdateContainer(ctx, &api.UpdateContainerRequest{
		Pod: podView(r), Container: containerView(r, c, bundleSpec(c)), LinuxResources: toNRI(want),
	})
	end()
	if err != nil {
		return nil, refused("update container "+c.ID.Short(), err)
	}
	var final *pod.Resources
	var others []*api.ContainerUpdate
	for _, u := range answer.GetUpdate() {
		switch {
		case u == nil: // nobody changed anything of this container
		case u.GetContainerId() == string(c.ID):
			if final, err = fromNRI(u.GetLinux().GetResources()); err != nil {
				return nil, err
			}
		default:
			others = append(others, u)
		}
	}
	d.apply(ctx, others)
	return final, nil
}

// apply does what plugins want of other containers, and returns what failed.
// Nobody's lock may be held: these containers may be about to be changed too.
func (d *Driver) apply(ctx context.Context, updates []*api.ContainerUpdate) (failed []*api.ContainerUpdate) {
	for _, u := range updates {
		change, err := fromNRI(u.GetLinux().GetResources())
		if err == nil {
			err = d.host.Limit(ctx, pod.ContainerID(u.GetContainerId()), change)
		}
		if err == nil {
			continue
		}
		if !u.GetIgnoreFailure() {
			failed = append(failed, u)
		}
		d.cfg.Log.Warn("an NRI plugin's limits cannot be given to a container", "container", u.GetContainerId(), "error", err)
	}
	return failed
}
