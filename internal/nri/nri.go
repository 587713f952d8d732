package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/keylock"
	"fairlead.run/internal/pod"
)

// Config is what a Driver works with.
type Config struct {
	Version string // of this program, for plugins
	Socket  string // where plugins connect
	// Plugins is a folder of plugins that the driver starts itself, and
	// PluginConfigs one of files that these are given.
	Plugins       string
	PluginConfigs string
	// RegistrationTimeout is how long a plugin may take to say its name, and
	// RequestTimeout how long to answer anything else.
	RegistrationTimeout time.Duration
	RequestTimeout      time.Duration
	// Inject gives a spec CDI devices.
	Inject func(ctx context.Context, s *specs.Spec, names []string) error
	Log    *slog.Logger
}

// Host is the core, as plugins see it.
type Host interface {
	// Pods are all, and must not be modified.
	Pods() []*pod.Record
	// Limit changes limits without asking plugins.
	Limit(ctx context.Context, id pod.ContainerID, change *pod.Resources) error
}

// Driver is the runtime's side of NRI. Make one with New, Attach it to the
// core, give it a goroutine with Run, and call the others at any time.
type Driver struct {
	cfg  Config
	host Host
	nri  *adaptation.Adaptation

	plugins  atomic.Int32 // connected
	starting atomic.Bool  // plugins of our own, who are told from now on
	ending   keylock.Locks[pod.ContainerID]
	updates  sync.WaitGroup

	mu sync.Mutex
	// told are pods and containers that plugins have heard of and that the record
	// still calls Creating.
	told map[string]telling
	// over are pods that were stopped and containers that ended, of which plugins
	// have heard, or hear at this moment.
	over map[string]struct{}
}

// telling is what there is of a container whose bundle is not written yet: its
// spec, or what plugins see of it once they have adjusted that.
type telling struct {
	spec *specs.Spec
	view *api.Container
}

// New makes a driver; nobody can connect to it before Run.
func New(cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg, told: map[string]telling{}, over: map[string]struct{}{}}
	adaptation.SetPluginRegistrationTimeout(cfg.RegistrationTimeout)
	adaptation.SetPluginRequestTimeout(cfg.RequestTimeout)
	setLog(nil) // all that it would say is that plugins in WebAssembly are left out
	defer setLog(cfg.Log)
	options := []adaptation.Option{
		adaptation.WithSocketPath(cfg.Socket), adaptation.WithPluginPath(cfg.Plugins),
		adaptation.WithPluginConfigPath(cfg.PluginConfigs), adaptation.WithMetrics(counter{&d.plugins}),
	}
	if taken(cfg.Socket) {
		cfg.Log.Warn("another runtime serves NRI plugins at the socket of the configuration; none can connect to this one", "socket", cfg.Socket)
		options = append(options, adaptation.WithDisabledExternalConnections())
	}
	var err error
	if d.nri, err = adaptation.New("fairlead", cfg.Version, d.synchronize, d.update, options...); err != nil {
		return nil, fmt.Errorf("make the interface for NRI plugins: %w", err)
	}
	return d, nil
}

// taken says whether somebody listens on a socket. The library would delete it,
// and with it the way of plugins to their runtime.
func taken(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil { // anything else is somebody who does not answer
		return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT)
	}
	_ = c.Close()
	return true
}

// counter counts the plugins; it is how the library tells of them.
type counter struct{ n *atomic.Int32 }

func (c counter) UpdatePluginCount(n int)                         { c.n.Store(int32(n)) }
func (counter) RecordPluginInvocation(string, string, error)      {}
func (counter) RecordPluginLatency(string, string, time.Duration) {}

// RecordPluginAdjustments does nothing.
//
// Larger: the parameters are those of the library's interface.
func (counter) RecordPluginAdjustments(_, _ string, _ *api.ContainerAdjustment, _, _ int) {}

// Run starts the plugins of the configuration and lets others connect until ctx
// ends. Pods do without plugins where that fails.
func (d *Driver) Run(ctx context.Context) error {
	d.starting.Store(true)
	err := d.nri.Start()
	d.starting.Store(false)
	if err != nil {
		d.cfg.Log.Warn("NRI plugins cannot connect", "socket", d.cfg.Socket, "error", err)
	} else if err := os.Chmod(d.cfg.Socket, 0o600); err != nil && !errors.Is(err, unix.ENOENT) {
		d.cfg.Log.Warn("the socket of NRI plugins may be open to others than root", "socket", d.cfg.Socket, "error", err)
	}
	<-ctx.Done()
	d.nri.Stop()
	d.updates.Wait()
	return nil
}

// Attach tells whose pods they are, before Run and before the first event. What
// is over already is never told.
func (d *Driver) Attach(host Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host = host
	for _, r := range host.Pods() {
		if r.State == pod.Exited {
			d.over[string(r.ID)] = struct{}{}
		}
		for _, c := range r.Containers {
			if c.State == pod.Exited {
				d.over[string(c.ID)] = struct{}{}
			}
		}
	}
}

// Active says whether anybody wants to hear of anything.
func (d *Driver) Active() bool { return d.plugins.Load() > 0 || d.starting.Load() }

// refused is the error about what plugins said, of whose own kind nobody here
// knows. A request whose deadline is over is no plugin's fault.
func refused(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: an NRI plugin refuses it: %s: %w", what, status.Convert(err).Message(), errdefs.ErrPrecondition)
}
