package nri

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
)

// Edit lets plugins adjust a container that is being created. What they change
// is in s, and noted in r.Container.Adjusted, which also has the limits; s has
// those that were asked for. Other containers that plugins limit have their new
// limits by then.
func (d *Driver) Edit(ctx context.Context, r *pod.BundleRequest, s *specs.Spec) error {
	id := string(r.Container.ID)
	listens, end := d.begin(func() { d.told[id] = telling{spec: s} })
	defer end()
	if !listens {
		return nil
	}
	answer, err := d.create(ctx, r, s)
	// Whoever connects from here on sees the container as it is now.
	d.mu.Lock()
	d.told[id] = telling{view: containerView(r.Record, r.Container, s)}
	d.mu.Unlock()
	end()
	if err != nil {
		return err
	}
	d.apply(ctx, answer.GetUpdate())
	return nil
}

// create asks plugins and does what they want of the container.
func (d *Driver) create(ctx context.Context, r *pod.BundleRequest, s *specs.Spec) (*api.CreateContainerResponse, error) {
	view := containerView(r.Record, r.Container, s)
	answer, err := d.nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: podView(r.Record), Container: view})
	if err != nil {
		return nil, refused("create the container", err)
	}
	markRemoved(answer.GetAdjust(), s.Process.Env, view.GetEnv())
	if err := d.adjust(ctx, r, s, answer.GetAdjust()); err != nil {
		return nil, fmt.Errorf("adjust the container as NRI plugins want it: %w", err)
	}
	return answer, nil
}

// markRemoved notes the variables that plugins have removed: the library takes
// them out of what the next plugin sees, and out of its answer.
func markRemoved(a *api.ContainerAdjustment, before, after []string) {
	if a == nil {
		return
	}
	left := map[string]bool{}
	for _, v := range after {
		name, _, _ := strings.Cut(v, "=")
		left[name] = true
	}
	for _, v := range before {
		if name, _, _ := strings.Cut(v, "="); !left[name] {
			a.RemoveEnv(name)
		}
	}
}

// adjust puts an adjustment into a spec.
func (d *Driver) adjust(ctx context.Context, r *pod.BundleRequest, s *specs.Spec, a *api.ContainerAdjustment) error {
	if a == nil {
		return nil
	}
	out := pod.Adjusted{}
	w := &adjustment{spec: s, want: a, linux: a.GetLinux(), handler: r.Handler}
	for _, f := range fields {
		changed, err := f.put(w)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if changed {
			out.Fields = append(out.Fields, f.name)
		}
	}
	if names := a.GetCDIDevices(); len(names) > 0 {
		var want []string
		for _, n := range names {
			// The request's own are in the spec already.
			if !slices.Contains(r.Container.Config.CDIDevices, n.GetName()) {
				want = append(want, n.GetName())
			}
		}
		if err := d.cfg.Inject(ctx, s, want); err != nil {
			return err
		}
		out.Fields = append(out.Fields, "CDI_devices")
	}
	limits, err := limitsOf(r.Container, w.linux)
	if err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	if limits != nil {
		out.Limits = limits
		out.Fields = append(out.Fields, "resources")
	}
	out.CgroupsPath = w.linux.GetCgroupsPath()
	if len(out.Fields) > 0 {
		r.Container.Adjusted = &out
	}
	return nil
}

// limitsOf are the limits with what plugins want of them; nil if they want
// nothing.
func limitsOf(c *pod.Container, l *api.LinuxContainerAdjustment) (*pod.Resources, error) {
	change, err := fromNRI(l.GetResources())
	if err != nil || !sets(change) && l.GetOomScoreAdj() == nil {
		return nil, err
	}
	out := &pod.Resources{}
	if base := c.Config.Resources.With(change); base != nil {
		*out = *base
	}
	if score := l.GetOomScoreAdj(); score != nil {
		out.OOMScoreAdj = score.GetValue()
	}
	return out, nil
}
