package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"google.golang.org/grpc"

	adminv1 "fairlead.run/api/admin/v1"
	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/criserver"
	"fairlead.run/internal/daemon/confwatch"
	"fairlead.run/internal/daemon/overhead"
	"fairlead.run/internal/daemon/tracing"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/resident"
	"fairlead.run/internal/streaming"
	"fairlead.run/internal/telemetry"
	"fairlead.run/internal/threads"
)

var (
	opened     = failpoint.Register("daemon.opened")
	leaving    = failpoint.Register("daemon.leaving")
	purged     = failpoint.Register("daemon.network-purged")
	monitorOff = failpoint.Register("daemon.monitor-ended")
)

// spareThreads are more than a daemon was seen to need under 50 pods that come
// and go; see docs/design/0032-process-ids.md.
const spareThreads = 64

// leaveTimeout bounds what is tidied when a daemon without pods ends.
const leaveTimeout = 15 * time.Second

// Source is where the configuration of a daemon can be read again.
type Source = confwatch.Source

// Options are what a daemon needs beside its configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// Source is where the configuration is read again; without Load it is not.
	Source Source
}

// Daemon is everything behind one CRI socket. Make one with Open, serve it with
// Run; after that it is used up.
type Daemon struct {
	cfg      *config.Config
	log      *slog.Logger
	version  string
	source   Source
	parts    *parts
	core     *lifecycle.Core
	streams  *streaming.Server
	server   *criserver.Server
	listener net.Listener
	metrics  net.Listener // nil if nobody is to scrape
}

// Open takes the state directory, makes all parts and listens. Nothing is
// served before Run. The configuration has to be validated.
func Open(ctx context.Context, cfg *config.Config, o Options) (_ *Daemon, err error) {
	if err := failpoint.Enable(os.Getenv(failpoint.Env)); err != nil {
		return nil, fmt.Errorf("read %s: %w", failpoint.Env, err)
	}
	resident.Grow(gcPercent)
	if err := threads.Reserve(spareThreads); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	d := &Daemon{cfg: cfg, log: o.Log, version: o.Version, source: o.Source}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.parts, err = openParts(ctx, cfg, o); err != nil {
		return nil, err
	}
	if d.core, err = lifecycle.New(ctx, d.parts.core, o.Log); err != nil {
		return nil, err
	}
	d.parts.changes.pods.Store(d.core)
	if d.parts.plugins != nil {
		d.parts.plugins.Attach(d.core)
	}
	warnOfReach(cfg, o.Log)
	d.streams, err = streaming.New(streaming.Config{
		Core: d.core, Dial: d.parts.dial, Log: o.Log, Address: cfg.Streaming.Address,
		IdleTimeout: cfg.Streaming.IdleTimeout.Duration, OpenTimeout: cfg.Streaming.TokenTTL.Duration,
	})
	if err != nil {
		return nil, err
	}
	if d.server, err = d.openServer(); err != nil {
		return nil, err
	}
	d.parts.gauges.observe(d)
	if d.metrics, err = openMetrics(cfg); err != nil {
		return nil, err
	}
	if at := cfg.Tracing.Endpoint; at != "" {
		if d.parts.traces, err = tracing.New(ctx, at, o.Version, o.Log); err != nil {
			return nil, err
		}
	}
	if d.listener, err = listen(endpointOf(cfg)); err != nil {
		return nil, err
	}
	return d, failpoint.Hit(opened)
}

func (d *Daemon) openServer() (*criserver.Server, error) {
	pulled := pulls{criImages{d.parts.images}, d.core.Pulled}
	return criserver.New(criserver.Config{
		Pods: d.core, Containers: d.core, Events: d.core, Handlers: d.parts.handlers,
		Network: d.parts.network, Images: pulled, Streams: d.streams, Stats: d.parts.meter,
		Log: d.log, Version: d.version, SystemdCgroups: systemdCgroups(d.cfg),
		Settings: d.cfg, Details: d.details,
		Register: func(r grpc.ServiceRegistrar) {
			adminv1.Register(r, admin{pods: d.core, images: d.parts.images, pulls: pulled, handlers: d.parts.handlers, changes: d.parts.changes, meter: overhead.New(d.parts.handlers), auditor: d.auditor})
		},
	})
}

// endpointOf is where the CRI is served: as configured, or in the state directory.
func endpointOf(cfg *config.Config) string {
	if cfg.Listen != "" {
		return cfg.Listen
	}
	return "unix://" + filepath.Join(cfg.State, "fairlead.sock")
}

// Server answers CRI calls of this process without a socket.
func (d *Daemon) Server() *criserver.Server { return d.server }

// Endpoint is where the CRI is served, as "unix:///path".
func (d *Daemon) Endpoint() string { return endpointOf(d.cfg) }

// Run serves until ctx ends, and gives everything back. Pods go on without the
// daemon; if there are none, monitor and network are taken down too.
func (d *Daemon) Run(ctx context.Context) error {
	g, ctx := newGroup(ctx)
	g.run("the CRI server", func() error { return d.server.Serve(ctx, d.listener) })
	g.run("the core", func() error { return d.core.Run(ctx) })
	g.run("the streaming server", func() error { return d.streams.Run(ctx) })
	g.run("the measuring of writable layers", func() error { return d.parts.meter.Run(ctx) })
	g.run("the giving back of memory", func() error {
		rest(ctx, d.parts.busy, func() {
			if err := resident.GiveBack(); err != nil {
				d.log.Debug("some memory was not given back", "error", err)
			}
		})
		return nil
	})
	if d.metrics != nil {
		g.run("the server of metrics", func() error { return telemetry.Serve(ctx, d.metrics, &d.parts.gauges.registry) })
		d.log.Info("metrics are told", "address", d.metrics.Addr())
	}
	if p := d.parts.plugins; p != nil {
		g.run("the interface for NRI plugins", func() error { return p.Run(ctx) })
	}
	g.run("the watch over the ends of containers", func() error { return quiet(ctx, d.parts.kept.Run(ctx)) })
	g.run("the network", func() error { return quiet(ctx, d.parts.network.Run(ctx)) })
	g.run("the trial of handlers", func() error { return quiet(ctx, d.tryHandlers(ctx)) })
	g.run("the tidying of handlers", func() error { return d.pruneHandlers(ctx) })
	if d.source.Load != nil {
		g.run("the watch over the configuration", func() error { return d.followConfig(ctx) })
	}
	g.run("the end of what an earlier daemon left", func() error { return d.tidyInherited(ctx) })
	if _, err := sdnotify.SdNotify(false, sdnotify.SdNotifyReady); err != nil {
		d.log.Warn("systemd was not told that the daemon is ready", "error", err)
	}
	d.log.Info("serving", "endpoint", d.Endpoint(), "version", d.version, "pods", len(d.core.Pods()))
	err := g.wait(ctx, endLimit)
	d.leave()
	return errors.Join(err, d.Close())
}

// trialDelay is how long the trial of handlers lets the pods of an earlier daemon
// go first. Whoever needs a handler has it tried at once.
const trialDelay = time.Second

// tryHandlers tries the handlers, which takes much of a processor, when the pods
// that are there have been looked at.
func (d *Daemon) tryHandlers(ctx context.Context) error {
	select {
	case <-d.core.Looked():
	case <-time.After(trialDelay):
	case <-ctx.Done():
	}
	return d.parts.handlers.Run(ctx)
}

// leave takes down what only serves pods, when there are none.
func (d *Daemon) leave() {
	if len(d.core.Pods()) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := errors.Join(failpoint.Hit(leaving), d.parts.network.Purge(ctx), failpoint.Hit(purged)); err != nil {
		d.log.Warn("the built-in network stays", "error", err)
	}
	if err := errors.Join(d.parts.monitor.Shutdown(ctx, false), failpoint.Hit(monitorOff)); err != nil {
		d.log.Warn("the monitor stays", "error", err)
	}
}

// Close gives everything back without having served.
func (d *Daemon) Close() error {
	var errs []error
	for _, l := range []net.Listener{d.listener, d.metrics} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.parts != nil {
		errs = append(errs, d.parts.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the daemon: %w", err)
	}
	return nil
}

// liveHeap is what of the daemon's memory was in use after the last collection of
// garbage, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// details are for the verbose answer of the CRI's Status. A process that stays is there for
// the daemon alone; another one ends with its command.
func (d *Daemon) details(ctx context.Context) map[string]any {
	out := map[string]any{
		"endpoint":   d.Endpoint(),
		"operations": operations(d.core, d.parts.images),
		"recovering": d.core.Recovering(),
		"process":    map[string]any{"pid": os.Getpid(), "goroutines": runtime.NumGoroutine(), "heap": liveHeap(), "stays": d.source.Load != nil},
		"network":    map[string]any{"driver": d.parts.network.Current().Name(), "notes": d.parts.network.Notes()},
	}
	if info, err := d.parts.monitor.Info(ctx); err == nil {
		out["monitor"] = info
	}
	return out
}
