package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/rootfs"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/spec"
	"fairlead.run/internal/stats"
)

// newMeter makes what measures pods. It tells the meter where cgroups are by
// asking those who say it to the runtimes.
func (p *parts) newMeter(cfg *config.Config, roots *rootfs.Roots, log *slog.Logger) (*stats.Meter, error) {
	systemd, driver := systemdCgroups(cfg), cgroupDriver(cfg)
	place := func(r *pod.Record, id string) (string, error) {
		p, err := spec.CgroupsPath(driver, r.Sandbox.Cgroup, id)
		if err != nil {
			return "", err
		}
		return cgroup.Path(p, systemd)
	}
	return stats.New(stats.Config{
		Cgroups: cgroup.Root, Systemd: systemd,
		// A pod's cgroup is what its containers' are in.
		PodCgroup: func(r *pod.Record) (string, error) {
			p, err := place(r, string(r.ID))
			return path.Dir(p), err
		},
		ContainerCgroup: func(r *pod.Record, id pod.ContainerID) (string, error) {
			if c := r.Container(id); c != nil && c.Adjusted != nil && c.Adjusted.CgroupsPath != "" {
				return cgroup.Path(c.Adjusted.CgroupsPath, systemd)
			}
			return place(r, string(id))
		},
		Layer: roots.Usage, LayerPath: roots.LayerPath(),
		Interfaces: new(network.Counters).In, Inside: p.usageInside,
		Groups: cfg.Stats.Metrics, Log: log,
	})
}

// insider is a handler whose sandboxes tell what their containers use.
type insider interface {
	UsageInside(ctx context.Context, r *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error)
}

func (p *parts) usageInside(ctx context.Context, r *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error) {
	h, err := p.handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return nil, err
	}
	i, ok := h.(insider)
	if !ok {
		return nil, fmt.Errorf("handler %s does not tell what containers in its sandboxes use: %w", r.Handler, errdefs.ErrUnimplemented)
	}
	return i.UsageInside(ctx, r)
}

func cgroupDriver(cfg *config.Config) spec.CgroupDriver {
	if systemdCgroups(cfg) {
		return spec.CgroupSystemd
	}
	return spec.CgroupFS
}
