package daemon

import (
	"log/slog"
	"path"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/rootfs"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/spec"
	"fairlead.run/internal/stats"
)

// newMeter makes what measures pods. It tells the meter where cgroups are by
// asking those who say it to the runtimes.
func newMeter(cfg *config.Config, roots *rootfs.Roots, log *slog.Logger) (*stats.Meter, error) {
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
		Interfaces: new(network.Counters).In, Groups: cfg.Stats.Metrics, Log: log,
	})
}

func cgroupDriver(cfg *config.Config) spec.CgroupDriver {
	if systemdCgroups(cfg) {
		return spec.CgroupSystemd
	}
	return spec.CgroupFS
}
