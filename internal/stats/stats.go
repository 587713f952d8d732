package stats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Config is what a Meter works with. All but Systemd is required.
type Config struct {
	// Cgroups is where the cgroup hierarchies are mounted.
	Cgroups string
	// Systemd says that systemd makes the cgroups.
	Systemd bool
	// PodCgroup and ContainerCgroup are paths from the top of a hierarchy.
	PodCgroup       func(r *pod.Record) (string, error)
	ContainerCgroup func(r *pod.Record, id pod.ContainerID) (string, error)
	// Layer walks a writable layer. It wraps errdefs.ErrNotFound for one that is
	// not there.
	Layer func(ctx context.Context, id pod.ContainerID) (bytes, inodes int64, err error)
	// LayerPath is a directory on the file system that writable layers are on.
	LayerPath string
	// Interfaces reads the counters of a pinned network namespace.
	Interfaces func(netns string) ([]pod.InterfaceUsage, error)
	Log        *slog.Logger
}

// Meter measures pods and containers. Make one with New and give it a goroutine
// with Run.
type Meter struct {
	cfg     Config
	cgroups cgroups
	rates   rates
	layers  *layers
}

// New makes a meter.
func New(c Config) *Meter {
	return &Meter{cfg: c, cgroups: findCgroups(c.Cgroups, c.Systemd), layers: newLayers(c.Layer, c.LayerPath, c.Log)}
}

// Run measures writable layers until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	m.layers.run(ctx)
	return nil
}

// Container measures a container. It wraps errdefs.ErrNotFound for one that
// does not run any more.
func (m *Meter) Container(_ context.Context, r *pod.Record, c *pod.Container) (pod.ContainerUsage, error) {
	path, err := m.cfg.ContainerCgroup(r, c.ID)
	if err != nil {
		return pod.ContainerUsage{}, fmt.Errorf("measure container %s: %w", c.ID.Short(), err)
	}
	seen, err := m.cgroups.look(path)
	if err != nil {
		return pod.ContainerUsage{}, fmt.Errorf("measure container %s: %w", c.ID.Short(), err)
	}
	m.rates.add(string(c.ID), seen.cpu)
	return pod.ContainerUsage{
		CPU: seen.cpu, Memory: seen.memory, Swap: seen.swap, IO: seen.io, Layer: m.layers.of(c.ID),
	}, nil
}

// Pod measures a pod without telling its containers apart. It wraps
// errdefs.ErrNotFound for one that was stopped.
func (m *Meter) Pod(_ context.Context, r *pod.Record) (pod.Usage, error) {
	path, err := m.cfg.PodCgroup(r)
	if err != nil {
		return pod.Usage{}, fmt.Errorf("measure pod %s: %w", r.ID.Short(), err)
	}
	traffic, ended := m.network(r)
	seen, err := m.cgroups.look(path)
	// A parent that the caller has named may come with the first container.
	if err != nil && ended {
		return pod.Usage{}, fmt.Errorf("measure pod %s: %w", r.ID.Short(), err)
	}
	m.rates.add(string(r.ID), seen.cpu)
	return pod.Usage{
		CPU: seen.cpu, Memory: seen.memory, IO: seen.io, Processes: seen.processes, Network: traffic,
	}, nil
}

// network is nil for a pod on the node's network, whose traffic is not its own.
func (m *Meter) network(r *pod.Record) (u *pod.NetworkUsage, ended bool) {
	if r.Sandbox.NetNS == "" {
		return nil, false
	}
	at := time.Now()
	found, err := m.cfg.Interfaces(r.Sandbox.NetNS)
	if err != nil {
		m.cfg.Log.Debug("the traffic of a pod cannot be read", "pod", r.ID, "error", err)
		return nil, errors.Is(err, errdefs.ErrNotFound)
	}
	return &pod.NetworkUsage{At: at, Interfaces: found}, false
}

// gone says that a cgroup is not there.
func gone(path string) error {
	return fmt.Errorf("it has no cgroup %s, so nothing of it runs: %w", path, errdefs.ErrNotFound)
}
