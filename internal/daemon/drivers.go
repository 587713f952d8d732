package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	config "fairlead.run/api/config/v1alpha1"
	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/checkpoint"
	"fairlead.run/internal/daemon/tracing"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/network"
	"fairlead.run/internal/nri"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/rootfs"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci"
	"fairlead.run/internal/runtime/shim"
	"fairlead.run/internal/sandbox"
	"fairlead.run/internal/selinux"
	"fairlead.run/internal/spec"
	"fairlead.run/internal/spec/cdi"
	"fairlead.run/internal/spec/host"
	"fairlead.run/internal/spec/keeper"
	"fairlead.run/internal/spec/origin"
	"fairlead.run/internal/stats"
	"fairlead.run/internal/store"
	"fairlead.run/internal/telemetry"
)

var (
	recordsOpen = failpoint.Register("daemon.records-open")
	imagesOpen  = failpoint.Register("daemon.images-open")
	networkOpen = failpoint.Register("daemon.network-open")
	monitorOn   = failpoint.Register("daemon.monitor-running")
)

// parts are the drivers of one daemon.
type parts struct {
	records  *store.Store
	images   *image.Store
	network  *criNetwork
	monitor  *client.Client
	kept     *client.Keep
	handlers *runtime.Registry[lifecycle.Handler]
	meter    *stats.Meter
	core     lifecycle.Drivers
	keepers  keepers
	gauges   *gauges
	changes  *changer
	busy     chan struct{}   // gets an element when an operation ended, for rest
	traces   *tracing.Sender // nil without a collector
	plugins  *nri.Driver     // nil if they are disabled
	edits    []spec.Editor
}

// openParts makes all drivers. The records come first: whoever has them open
// owns the state directory.
func openParts(ctx context.Context, cfg *config.Config, o Options) (_ *parts, err error) {
	p, log := &parts{gauges: newGauges(), busy: make(chan struct{}, 1)}, o.Log
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := makeDirs(cfg); err != nil {
		return nil, err
	}
	if p.records, err = store.Open(cfg.State); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(recordsOpen); err != nil {
		return nil, err
	}
	if aside, damage := p.records.SetAside(); damage != nil {
		log.Error("the file of pod records is damaged; pods that exist are told from what they have on this host, and can be stopped and removed",
			"error", damage, "kept", aside)
	}
	if p.images, err = image.Open(ctx, imageSettings(cfg, log)); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(imagesOpen); err != nil {
		return nil, err
	}
	if p.network, err = openNetwork(cfg, log); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(networkOpen); err != nil {
		return nil, err
	}
	program, err := monitorProgram(cfg)
	if err != nil {
		return nil, err
	}
	if p.kept, err = client.NewKeep(log); err != nil {
		return nil, err
	}
	watch := client.Options{StateDir: cfg.State, Binary: program, Cgroup: monitorCgroup(cfg.State), Keep: p.kept}
	if p.monitor, err = client.Ensure(ctx, watch); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(monitorOn); err != nil {
		return nil, err
	}
	if err := p.openHandlers(cfg, p.monitor, program, log); err != nil {
		return nil, err
	}
	devices := cdi.New(cfg.Containers.CDISpecDirs)
	if p.plugins, err = openPlugins(cfg, devices, o); err != nil {
		return nil, err
	}
	p.edits = append(p.edits, devices)
	if p.plugins != nil {
		p.edits = append(p.edits, p.plugins)
	}
	if err := p.openCore(cfg, program, log); err != nil {
		return nil, err
	}
	p.core.Exits = oci.NewExits(reviver{p.monitor, watch, p.gauges.monitorEnds}, log)
	p.core.Ended = func(e ops.Ended) {
		p.gauges.ended(e)
		p.traces.Ended(e)
		signal(p.busy)
		if e.Kind == ops.KindPod && (e.Verb == ops.Remove || e.Verb == ops.Run) {
			signal(p.changes.fewer)
		}
	}
	return p, nil
}

// signal puts an element into a channel of one, unless there is one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// openCore makes the drivers that only the core knows.
func (p *parts) openCore(cfg *config.Config, monitor string, log *slog.Logger) error {
	systemd := systemdCgroups(cfg)
	boxes, err := sandbox.New(sandbox.Config{
		StateDir: cfg.State, RootDir: cfg.Root, SystemdCgroups: systemd, Cgroup: PodCgroup(cfg.State), Sysctls: sandbox.UnprivilegedSysctls(),
		Waiter: waiter(monitor), Log: log,
	})
	if err != nil {
		return err
	}
	roots, err := rootfs.New(cfg.State, cfg.Root, p.images.ApplyChanges)
	if err != nil {
		return err
	}
	labels, warning := selinux.New()
	if warning != "" {
		log.Warn("SELinux is enabled, and containers are not labelled", "reason", warning)
	}
	bundles, err := p.openBundles(cfg, monitor, roots, log)
	if err != nil {
		return err
	}
	if p.meter, err = p.newMeter(cfg, roots, log); err != nil {
		return err
	}
	p.keepers.sandboxes, p.keepers.roots, p.keepers.labels = boxes, roots, labels
	p.keepers.bundles = keeper.Keeper{StateDir: cfg.State, Remove: bundles.Remove}
	p.keepers.captures = checkpoint.Keeper{Folders: checkpoint.New(cfg.Root, cfg.Checkpoints.Restore)}
	p.core = lifecycle.Drivers{
		Store: p.records, Sandboxes: boxes, Network: network.Pods{Driver: p.network},
		Images: coreImages{p.images}, Roots: roots, Labels: labels, Bundles: bundles, Handlers: p.handlers,
		Streams: oci.NewStreams(oci.MonitorStreams{Client: p.monitor}), Checkpoints: p.keepers.captures.Folders,
		Tracers: []lifecycle.Tracer{boxes, origin.Reader{StateDir: cfg.State}, p.network},
	}
	if p.plugins != nil {
		p.core.Plugins = p.plugins
	}
	return nil
}

// forwarder is a handler whose pods have their network inside a sandbox.
type forwarder interface {
	Forward(ctx context.Context, pod string, port uint16) (net.Conn, error)
}

// dial connects to a port on a pod's localhost.
func (p *parts) dial(ctx context.Context, r *pod.Record, port uint16) (net.Conn, error) {
	if !r.Sandbox.OwnKernel {
		return network.DialInNetNS(ctx, r.Sandbox.NetNS, port)
	}
	h, err := p.handlers.Serving(r.Handler, r.Revision)
	if err != nil {
		return nil, err
	}
	f, ok := h.(forwarder)
	if !ok {
		return nil, fmt.Errorf("handler %s cannot reach into the network of its sandboxes: %w", r.Handler, errdefs.ErrUnimplemented)
	}
	conn, err := f.Forward(ctx, string(r.ID), port)
	if errors.Is(err, errdefs.ErrUnimplemented) {
		return network.DialAddresses(ctx, r.Sandbox.IPs, port)
	}
	return conn, err
}

// openPlugins makes the interface for NRI plugins, or nothing if it is disabled.
func openPlugins(cfg *config.Config, devices *cdi.Devices, o Options) (*nri.Driver, error) {
	if cfg.NRI.Disable {
		return nil, nil
	}
	return nri.New(nri.Config{
		Version: o.Version, Socket: pluginSocket(cfg), Inject: devices.Inject, Log: o.Log,
		Plugins: cfg.NRI.PluginDir, PluginConfigs: cfg.NRI.PluginConfigDir,
		RegistrationTimeout: cfg.NRI.RegistrationTimeout.Duration, RequestTimeout: cfg.NRI.RequestTimeout.Duration,
	})
}

func imageSettings(cfg *config.Config, log *slog.Logger) image.Config {
	return image.Config{
		Root: cfg.Root, CertsDirs: cfg.Images.CertsDirs,
		MaxConcurrentDownloads: cfg.Images.MaxConcurrentDownloads,
		StallTimeout:           cfg.Images.StallTimeout.Duration, Pinned: cfg.Images.Pinned, Logger: log,
		Limits: image.Limits{LayerEntries: cfg.Images.MaxLayerEntries, LayerBytes: cfg.Images.MaxLayerBytes},
	}
}

func (p *parts) openHandlers(cfg *config.Config, m oci.Monitor, program string, log *slog.Logger) error {
	_, idle := m.(idleMonitor)
	shims, err := shim.New(shim.Config{StateDir: cfg.State, Monitor: program, Systemd: systemdCgroups(cfg)})
	if err != nil {
		return err
	}
	driver, err := oci.New(oci.Config{
		Adapt:    shims.Adapter,
		StateDir: cfg.State, Systemd: systemdCgroups(cfg), Monitor: m, StandIn: program,
		UserNS:     (&mapper{state: cfg.State, root: cfg.Root, monitor: program}).try,
		LogMaxLine: cfg.Containers.MaxLogLine, Log: log,
	})
	if err != nil {
		return err
	}
	p.changes = &changer{dir: addedFolder(cfg), log: log, base: cfg, fewer: make(chan struct{}, 1)}
	p.handlers, err = runtime.New(
		runtime.Config{Wanted: firstHandlers(cfg, log), Shelf: filepath.Join(cfg.Root, "handlers"), Idle: idle, Uses: p.changes.uses, Log: log},
		map[string]runtime.Kind[lifecycle.Handler]{
			runtime.KindOCI:  oci.Kind(driver, func(h *oci.Handler) lifecycle.Handler { return h }),
			runtime.KindShim: shim.Kind(shims, driver, func(h *oci.Handler) lifecycle.Handler { return h }),
		})
	if err != nil {
		return err
	}
	p.keepers.handlers = oci.Keeper{Driver: driver, Handlers: p.handlers.Described}
	p.changes.registry = p.handlers
	return nil
}

func (p *parts) openBundles(cfg *config.Config, monitor string, roots *rootfs.Roots, log *slog.Logger) (*spec.Builder, error) {
	seen, err := host.Probe()
	if err != nil {
		return nil, err
	}
	limits := make(map[string]spec.Rlimit, len(cfg.Containers.Rlimits))
	for name, l := range cfg.Containers.Rlimits {
		limits[name] = spec.Rlimit{Soft: uint64(l.Soft), Hard: uint64(l.Hard)}
	}
	b, err := spec.New(spec.Config{
		StateDir: cfg.State, RootDir: cfg.Root, CgroupDriver: cgroupDriver(cfg),
		Monitor: monitor, DefaultRlimits: limits, Host: seen,
		Edits: p.edits,
		Map:   roots.Map,
	})
	if err != nil {
		return nil, err
	}
	for _, w := range b.Warnings() {
		log.Warn("a part of the configuration cannot be met on this host", "part", w)
	}
	return b, nil
}

// reviver starts the monitor again when both of its processes are dead. The
// client holds no connection, so it reaches the new one by itself.
type reviver struct {
	*client.Client
	options client.Options
	lost    *telemetry.Counter
}

// Events is the place where the daemon learns first that the monitor is away.
func (r reviver) Events(ctx context.Context, see func(monitorv1.Exit)) error {
	err := r.Client.Events(ctx, see)
	if ctx.Err() != nil {
		return err
	}
	r.lost.Add(1)
	_, revived := client.Ensure(ctx, r.options)
	return errors.Join(err, revived)
}

// close gives everything back that openParts took. Pods go on.
func (p *parts) close() error {
	var errs []error
	if p.kept != nil {
		errs = append(errs, p.kept.Close())
	}
	if p.images != nil {
		errs = append(errs, p.images.Close())
	}
	errs = append(errs, p.traces.Close())
	if p.records != nil {
		errs = append(errs, p.records.Close())
	}
	return errors.Join(errs...)
}
