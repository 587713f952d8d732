package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci/criu"
	"fairlead.run/internal/runtime/oci/filter"
	"fairlead.run/internal/runtime/oci/warmth"
	"fairlead.run/internal/sealed"
	"fairlead.run/internal/userns"
)

// Monitor is what handlers need of fairlead-monitor; internal/monitor/client
// has it, with the meaning of each method.
type Monitor interface {
	Starter
	Wait(ctx context.Context, id string) (monitorv1.Exit, error)
	List(ctx context.Context) ([]monitorv1.Process, error)
	Find(ctx context.Context, id string) (monitorv1.Process, error)
	Signal(ctx context.Context, id string, sig syscall.Signal, all bool) error
	Forget(ctx context.Context, id string) error
}

// Starter is what of it runs the commands of runtimes.
type Starter interface {
	Start(ctx context.Context, r monitorv1.StartRequest) (monitorv1.Started, error)
	Exec(ctx context.Context, r monitorv1.ExecRequest, stdio [3]*os.File) (monitorv1.Started, *os.File, error)
	GiveUp(ctx context.Context, id string) error
}

// Config is what a Driver is made from.
type Config struct {
	// StateDir is the state directory, absolute. Bundles are containers/ID in it.
	StateDir string
	// Systemd says that systemd makes the cgroups; otherwise they are directories.
	Systemd bool
	Monitor Monitor
	// StandIn is fairlead-monitor, as the program that stands in for containers of
	// sandboxes, and that runs in containers on trial. Without it no handler works.
	StandIn string
	// LogMaxLine is the length in bytes at which log lines are split; zero is
	// the monitor's default.
	LogMaxLine int
	// UserNS makes a user namespace in which every id is itself, for handlers to
	// be tried in. Its error says why pods can have none on this host. A nil
	// UserNS means that nobody has looked.
	UserNS func(context.Context) (*userns.Holder, error)
	// Adapt says how a definition of another kind is run; see Adapter. Nil means that
	// there are none.
	Adapt func(runtime.Definition) Adapter
	// Log gets what cannot be returned; nil means slog.Default().
	Log *slog.Logger

	// Set by New, one for all handlers.
	warmth   *warmth.Warmth
	filters  *filter.Cache
	programs *sealed.Programs
	criu     *criu.Host
	trials   *trials
}

// Driver makes handlers of the kind "oci".
type Driver struct {
	cfg    Config
	trials *trials // that are under way; Config has the same
}

// New checks the configuration.
func New(cfg Config) (*Driver, error) {
	var bad []error
	if !filepath.IsAbs(cfg.StateDir) {
		bad = append(bad, fmt.Errorf("state directory %q is not an absolute path: %w", cfg.StateDir, errdefs.ErrInvalidArgument))
	}
	if cfg.Monitor == nil {
		bad = append(bad, fmt.Errorf("no monitor: %w", errdefs.ErrInvalidArgument))
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("configure OCI handlers: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.warmth, cfg.filters, cfg.programs, cfg.criu = &warmth.Warmth{}, &filter.Cache{}, &sealed.Programs{}, &criu.Host{}
	cfg.trials = &trials{}
	return &Driver{cfg: cfg, trials: cfg.trials}, nil
}

// Kind is the driver for a runtime.Registry. as turns a handler into the type
// that the registry's user wants.
func Kind[H any](d *Driver, as func(*Handler) H) runtime.Kind[H] {
	return runtime.Kind[H]{
		Probe:       d.Probe,
		Fingerprint: d.Fingerprint,
		Open: func(def runtime.Definition, info func() pod.HandlerInfo) H {
			return as(d.Open(def, info))
		},
	}
}

// Open makes the handler of a definition.
func (d *Driver) Open(def runtime.Definition, info func() pod.HandlerInfo) *Handler {
	return &Handler{cfg: d.cfg, def: def, info: info, tool: d.tool(def)}
}

func (d *Driver) tool(def runtime.Definition) tool {
	t := tool{def: def, root: d.root(def), systemd: d.cfg.Systemd, from: asItIs}
	if d.cfg.Adapt != nil && def.Kind() != runtime.KindOCI {
		t.adapter = d.cfg.Adapt(def)
	}
	return t
}

// root is where the runtime keeps its own state.
func (d *Driver) root(def runtime.Definition) string {
	if def.Root != "" {
		return def.Root
	}
	return filepath.Join(d.cfg.StateDir, "runtimes", def.Name)
}
