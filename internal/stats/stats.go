package stats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	// Inside asks the sandbox of a pod with a kernel of its own what its running
	// containers use.
	Inside func(ctx context.Context, r *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error)
	// Groups are the groups of metrics that are wanted, as the configuration names
	// them.
	Groups []string
	Log    *slog.Logger
}

// Meter measures pods and containers. Make one with New and give it a goroutine
// with Run.
type Meter struct {
	cfg         Config
	cgroups     cgroups
	rates       rates
	layers      *layers
	inside      *inside
	families    *families
	layerDevice string
	usage       *lately[pod.Measured]
	metrics     *lately[pod.Metrics]
}

// New makes a meter. It wraps errdefs.ErrInvalidArgument for a group that does
// not exist.
func New(c Config) (*Meter, error) {
	f, err := newFamilies(c.Groups)
	if err != nil {
		return nil, fmt.Errorf("make the meter: %w", err)
	}
	m := &Meter{cfg: c, cgroups: findCgroups(c.Cgroups, c.Systemd), families: f, layers: newLayers(c.Layer, c.LayerPath, c.Log)}
	m.layerDevice = m.cgroups.devices.holding(c.LayerPath)
	m.inside = newInside(c.Inside, c.Log)
	m.usage, m.metrics = newLately(m.inside.begin, m.measure), newLately(m.inside.begin, m.measureMetrics)
	return m, nil
}

// Run measures in the background what somebody asks about, until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, run := range []func(context.Context){m.layers.run, m.inside.run, m.usage.run, m.metrics.run} {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
	return nil
}

// UsageOf measures containers and pods, in the order of the subjects. On a node
// with very many, what it says of some was measured up to ten seconds before;
// each value has its time. An error that wraps errdefs.ErrNotFound is that of one
// that does not run any more.
func (m *Meter) UsageOf(ctx context.Context, subjects []pod.Subject) []pod.Measured {
	out := make([]pod.Measured, len(subjects))
	for i, found := range m.usage.of(ctx, subjects) {
		out[i] = found.value
		out[i].Err = found.err
	}
	return out
}

func (m *Meter) measure(s pod.Subject) (out pod.Measured, err error) {
	if s.Container != nil {
		out.Container, err = m.Container(s.Pod, s.Container)
	} else {
		out.Pod, err = m.Pod(s.Pod)
	}
	return out, err
}

// Container measures a container. It wraps errdefs.ErrNotFound for one that
// does not run any more.
func (m *Meter) Container(r *pod.Record, c *pod.Container) (pod.ContainerUsage, error) {
	path, err := m.cfg.ContainerCgroup(r, c.ID)
	if err != nil {
		return pod.ContainerUsage{}, fmt.Errorf("measure container %s: %w", c.ID.Short(), err)
	}
	seen, err := m.cgroups.look(path)
	if err != nil {
		return pod.ContainerUsage{}, fmt.Errorf("measure container %s: %w", c.ID.Short(), err)
	}
	if r.Sandbox.OwnKernel {
		seen = fromInside(m.inside.of(r, c.ID))
	}
	m.rates.add(string(c.ID), seen.cpu)
	return pod.ContainerUsage{
		CPU: seen.cpu, Memory: seen.memory, Swap: seen.swap, IO: seen.io, Layer: m.layers.of(c.ID),
	}, nil
}

// fromInside is what the sandbox says in the form in which the host would have
// said it. The sandbox does not tell which files nobody has used lately, so that
// everything counts as in use.
func fromInside(u pod.InsideUsage) (s seen) {
	if u.CPU != nil {
		s.cpu = &pod.CPUUsage{At: u.At, Total: u.CPU}
	}
	if u.Memory != nil {
		s.memory = &pod.MemoryUsage{At: u.At, Total: u.Memory, WorkingSet: u.Memory}
	}
	if u.Threads != nil {
		s.processes = &pod.ProcessUsage{At: u.At, Count: *u.Threads}
	}
	return s
}

// Pod measures a pod without telling its containers apart. It wraps
// errdefs.ErrNotFound for one that was stopped.
func (m *Meter) Pod(r *pod.Record) (pod.Usage, error) {
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
