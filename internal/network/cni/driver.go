package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/network"
)

// Name is what the ledger calls this driver.
const Name = "cni"

// Driver runs the plugins of the configured conflist. Make one with New.
type Driver struct {
	cfg    Config
	ledger *network.Ledger
	cni    *libcni.CNIConfig
	run    *runner // of cni

	// gcMu is held for reading by ADD and for writing by GC: a plugin must not
	// collect what another instance of it is just handing out.
	gcMu sync.RWMutex

	mu       sync.Mutex
	current  conflist
	watching bool   // Run keeps current up to date
	health   health // of current
}

// health is what the plugins last said to STATUS.
type health struct {
	err   error
	until time.Time
}

// How long an answer to STATUS counts. The kubelet asks every few seconds, and
// an answer costs a process per plugin.
const (
	healthyFor = 10 * time.Second
	sickFor    = 2 * time.Second
)

var _ network.Optional = (*Driver)(nil)

// New makes the driver and reads the configuration; one that does not work is
// no error here but in Status.
func New(cfg Config, ledger *network.Ledger) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure CNI: %w", err)
	}
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.CacheDir, 0o700); err != nil {
		return nil, fmt.Errorf("configure CNI: %w", err)
	}
	run := &runner{}
	return &Driver{
		cfg: cfg, ledger: ledger, current: cfg.load(), run: run,
		cni: libcni.NewCNIConfigWithCacheDir(cfg.BinDirs, cfg.CacheDir, run),
	}, nil
}

// Name returns "cni".
func (d *Driver) Name() string { return Name }

// Configured says whether there is a configuration, working or not.
func (d *Driver) Configured() bool { return d.conflist().configured }

// conflist is the configuration for new pods.
func (d *Driver) conflist() conflist {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.watching {
		d.adopt(d.cfg.load())
	}
	return d.current
}

// adopt makes cl the configuration for new pods. d.mu is held.
func (d *Driver) adopt(cl conflist) (changed bool) {
	changed = cl.file != d.current.file || string(cl.frozen) != string(d.current.frozen) || fmt.Sprint(cl.err) != fmt.Sprint(d.current.err)
	d.current = cl
	if changed {
		d.health = health{}
	}
	return changed
}

// Status says why the configuration cannot attach pods: it is broken, a plugin
// is missing, or a plugin says so.
func (d *Driver) Status(ctx context.Context) error {
	cl := d.conflist()
	switch {
	case !cl.configured:
		return fmt.Errorf("there is no CNI configuration in %s: %w", d.cfg.ConfDir, errdefs.ErrUnavailable)
	case cl.err != nil:
		return cl.err
	}
	if err := d.lookForPlugins(ctx, cl.list); err != nil {
		return fmt.Errorf("CNI configuration %s: %w", cl.file, err)
	}
	d.mu.Lock()
	h := d.health
	d.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.err
	}
	return d.ask(ctx, cl)
}

// lookLimit bounds the look for plugins: whoever asks for the status is to hear
// that their folder hangs before giving up.
const lookLimit = 2 * time.Second

func (d *Driver) lookForPlugins(ctx context.Context, list *libcni.NetworkConfigList) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	_, err := hostpath.Look(ctx, strings.Join(d.cfg.BinDirs, ", "), func() (any, error) { return nil, d.cfg.missing(list) })
	return err
}

// ask runs STATUS, which exists since CNI 1.1.
func (d *Driver) ask(ctx context.Context, cl conflist) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DelTimeout)
	defer cancel()
	h := health{err: d.cni.GetStatusNetworkList(ctx, cl.list), until: time.Now().Add(healthyFor)}
	if h.err != nil {
		h.until = time.Now().Add(sickFor)
		h.err = fmt.Errorf("CNI configuration %s, network %q: %w", cl.file, cl.list.Name, h.err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if string(d.current.frozen) == string(cl.frozen) {
		d.health = h
	}
	return h.err
}

// record is what the ledger keeps for this driver: all that DEL needs, in case
// the configuration has changed by then.
type record struct {
	File         string          `json:"file"`
	Conflist     json.RawMessage `json:"conflist"`
	Args         [][2]string     `json:"args"`
	Capabilities map[string]any  `json:"capabilities,omitempty"`
}

// restore turns an entry into the arguments of libcni.
func restore(e network.Entry) (*libcni.NetworkConfigList, *libcni.RuntimeConf, record, error) {
	var rec record
	if err := json.Unmarshal(e.Data, &rec); err != nil {
		return nil, nil, rec, fmt.Errorf("read the ledger entry of pod %s: %w: %w", e.ID, err, errdefs.ErrInternal)
	}
	list, err := libcni.NetworkConfFromBytes(rec.Conflist)
	if err != nil {
		return nil, nil, rec, fmt.Errorf("read the ledger entry of pod %s: %w: %w", e.ID, err, errdefs.ErrInternal)
	}
	rt := runtimeConf(&e.Request, rec.Capabilities)
	rt.Args = rec.Args
	return list, rt, rec, nil
}
