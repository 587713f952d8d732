package shim

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci"
	"fairlead.run/internal/taskapi"
)

// Config is what a Driver is made from.
type Config struct {
	// StateDir is the state directory, absolute. What a shim needs besides its pods'
	// bundles is in the folder "shims" of it.
	StateDir string
	// Monitor is the program fairlead-monitor, absolute.
	Monitor string
	// Systemd says that systemd makes the cgroups.
	Systemd bool
}

// Driver makes handlers of the kind "shim".
type Driver struct {
	cfg Config
}

// New checks the configuration.
func New(cfg Config) (*Driver, error) {
	if !filepath.IsAbs(cfg.StateDir) || !filepath.IsAbs(cfg.Monitor) {
		return nil, fmt.Errorf("configure shims: state directory %q and monitor %q have to be absolute paths: %w", cfg.StateDir, cfg.Monitor, errdefs.ErrInvalidArgument)
	}
	return &Driver{cfg}, nil
}

// Adapter runs a definition of this kind.
func (d *Driver) Adapter(def runtime.Definition) oci.Adapter { return adapter{d.cfg, def} }

// Kind is the driver for a runtime.Registry. o has to have this one's Adapter; as
// turns a handler into the type that the registry's user wants.
func Kind[H any](d *Driver, o *oci.Driver, as func(*oci.Handler) H) runtime.Kind[H] {
	return runtime.Kind[H]{
		Probe:       func(ctx context.Context, def runtime.Definition) pod.HandlerInfo { return d.probe(ctx, o, def) },
		Fingerprint: fingerprint,
		Open: func(def runtime.Definition, info func() pod.HandlerInfo) H {
			return as(o.Open(def, info))
		},
	}
}

// adapter is the way to the containers of one handler.
type adapter struct {
	cfg Config
	def runtime.Definition
}

// folder is where shims have their sockets for events, with a short path.
func (a adapter) folder() string { return filepath.Join(a.cfg.StateDir, "shims") }

// Command implements oci.Adapter.
func (a adapter) Command(program string) []string {
	options := a.options()
	return []string{
		a.cfg.Monitor, "shim", "--shim", program, "--events", a.folder(),
		"--options-type", options.Type, "--options", base64.StdEncoding.EncodeToString(options.Value),
	}
}

// options are those of the configuration, which has been validated.
func (a adapter) options() taskapi.Any {
	set := a.def.Options
	if a.def.RuntimeType == v1alpha1.RuncShim {
		o := taskapi.RuncOptions{SystemdCgroup: a.cfg.Systemd}
		o.BinaryName, _ = set["BinaryName"].(string)
		o.Root, _ = set["Root"].(string)
		o.ShimCgroup, _ = set["ShimCgroup"].(string)
		o.NoPivotRoot, _ = set["NoPivotRoot"].(bool)
		o.NoNewKeyring, _ = set["NoNewKeyring"].(bool)
		if o.Root == "" {
			o.Root = filepath.Join(a.folder(), "runc-"+a.def.Name)
		}
		return o.Encode()
	}
	o := taskapi.FileOptions{Path: a.def.ConfigPath}
	o.Type, _ = set["TypeUrl"].(string)
	body := maps.Clone(set)
	delete(body, "TypeUrl")
	if o.Path == "" && len(body) > 0 {
		// What came from TOML can be written as such again.
		o.Body, _ = toml.Marshal(body)
	}
	if o.Type == "" && o.Path == "" && o.Body == nil {
		return taskapi.Any{}
	}
	return o.Encode()
}

// Signal implements oci.Adapter.
func (a adapter) Signal(ctx context.Context, root string, to oci.Addressee, sig unix.Signal) error {
	r, err := taskapi.ReadRecord(root, to.ID)
	if err != nil {
		return err
	}
	if r.Address == "" {
		return fmt.Errorf("container %s has no shim yet: %w", to.ID, errdefs.ErrNotFound)
	}
	return r.Kill(ctx, taskapi.Process{ID: to.ID, Exec: to.Exec}, sig, to.All)
}

// Task implements oci.Adapter. Of a sandbox with a kernel of its own all containers
// have the sandbox's, by which gVisor's shim knows who joins its processes.
func (a adapter) Task(root, id string) int {
	r, err := taskapi.ReadRecord(root, id)
	if err != nil {
		return 0
	}
	return r.PID
}

// Usage implements oci.Adapter.
func (a adapter) Usage(ctx context.Context, root, id string) (pod.InsideUsage, error) {
	r, err := taskapi.ReadRecord(root, id)
	if err != nil {
		return pod.InsideUsage{}, err
	}
	at := time.Now()
	u, err := r.Stats(ctx, id)
	if err != nil {
		return pod.InsideUsage{}, err
	}
	return pod.InsideUsage{At: at, CPU: u.CPU, User: u.User, System: u.System, Memory: u.Memory, Threads: u.Processes}, nil
}
