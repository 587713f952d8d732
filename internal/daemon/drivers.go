package daemon

import (
	"context"
	"errors"
	"log/slog"

	config "fairlead.run/api/config/v1alpha1"
	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/image"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/network"
	"fairlead.run/internal/rootfs"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci"
	"fairlead.run/internal/sandbox"
	"fairlead.run/internal/spec"
	"fairlead.run/internal/spec/host"
	"fairlead.run/internal/spec/keeper"
	"fairlead.run/internal/spec/origin"
	"fairlead.run/internal/stats"
	"fairlead.run/internal/store"
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
	handlers *runtime.Registry[lifecycle.Handler]
	meter    *stats.Meter
	core     lifecycle.Drivers
	keepers  keepers
}

// openParts makes all drivers. The records come first: whoever has them open
// owns the state directory.
func openParts(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *parts, err error) {
	p := &parts{}
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
	watch := client.Options{StateDir: cfg.State, Binary: program, Cgroup: monitorCgroup(cfg.State)}
	if p.monitor, err = client.Ensure(ctx, watch); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(monitorOn); err != nil {
		return nil, err
	}
	if err := p.openHandlers(cfg, p.monitor, log); err != nil {
		return nil, err
	}
	if err := p.openCore(cfg, program, log); err != nil {
		return nil, err
	}
	p.core.Exits = oci.NewExits(reviver{p.monitor, watch}, log)
	return p, nil
}

// openCore makes the drivers that only the core knows.
func (p *parts) openCore(cfg *config.Config, monitor string, log *slog.Logger) error {
	systemd := systemdCgroups(cfg)
	boxes, err := sandbox.New(sandbox.Config{
		StateDir: cfg.State, SystemdCgroups: systemd, Cgroup: podCgroup(cfg.State), Sysctls: sandbox.UnprivilegedSysctls(),
	})
	if err != nil {
		return err
	}
	roots, err := rootfs.New(cfg.State, cfg.Root)
	if err != nil {
		return err
	}
	bundles, err := openBundles(cfg, monitor, log)
	if err != nil {
		return err
	}
	p.meter = newMeter(cfg, roots, log)
	p.keepers.sandboxes, p.keepers.roots = boxes, roots
	p.keepers.bundles = keeper.Keeper{StateDir: cfg.State, Remove: bundles.Remove}
	p.core = lifecycle.Drivers{
		Store: p.records, Sandboxes: boxes, Network: network.Pods{Driver: p.network},
		Images: coreImages{p.images}, Roots: roots, Bundles: bundles, Handlers: p.handlers,
		Streams: oci.NewStreams(oci.MonitorStreams{Client: p.monitor}),
		Tracers: []lifecycle.Tracer{boxes, origin.Reader{StateDir: cfg.State}, p.network},
	}
	return nil
}

func imageSettings(cfg *config.Config, log *slog.Logger) image.Config {
	return image.Config{
		Root: cfg.Root, CertsDirs: cfg.Images.CertsDirs,
		MaxConcurrentDownloads: cfg.Images.MaxConcurrentDownloads,
		StallTimeout:           cfg.Images.StallTimeout.Duration, Logger: log,
	}
}

func (p *parts) openHandlers(cfg *config.Config, m oci.Monitor, log *slog.Logger) error {
	driver, err := oci.New(oci.Config{
		StateDir: cfg.State, Systemd: systemdCgroups(cfg), Monitor: m,
		LogMaxLine: cfg.Containers.MaxLogLine, Log: log,
	})
	if err != nil {
		return err
	}
	p.keepers.handlers = oci.Keeper{Driver: driver, Handlers: cfg.Handlers}
	p.handlers, err = runtime.New(runtime.Config{Handlers: cfg.Handlers, Default: cfg.DefaultHandler, Log: log},
		map[string]runtime.Kind[lifecycle.Handler]{
			runtime.KindOCI: oci.Kind(driver, func(h *oci.Handler) lifecycle.Handler { return h }),
		})
	return err
}

func openBundles(cfg *config.Config, monitor string, log *slog.Logger) (*spec.Builder, error) {
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
}

// Events is the place where the daemon learns first that the monitor is away.
func (r reviver) Events(ctx context.Context, see func(monitorv1.Exit)) error {
	err := r.Client.Events(ctx, see)
	if ctx.Err() != nil {
		return err
	}
	_, revived := client.Ensure(ctx, r.options)
	return errors.Join(err, revived)
}

// close gives everything back that openParts took. Pods go on.
func (p *parts) close() error {
	var errs []error
	if p.images != nil {
		errs = append(errs, p.images.Close())
	}
	if p.records != nil {
		errs = append(errs, p.records.Close())
	}
	return errors.Join(errs...)
}
