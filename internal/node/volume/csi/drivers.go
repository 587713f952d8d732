package csi

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/plugins"
)

// PluginType is what drivers call themselves when they register.
const PluginType = "CSIPlugin"

// Drivers are those that have registered on this machine. It implements plugins.Kind.
type Drivers struct {
	check func(driver string, info NodeInfo) error
	told  func(driver string, info *NodeInfo)

	mu    sync.Mutex
	known map[string]plugins.Plugin // by name
}

// NewDrivers makes a set that is empty. Told hears of each driver that has come, or
// with nil that is gone; check may refuse one because of what it says of the node.
// Neither may wait.
func NewDrivers(check func(driver string, info NodeInfo) error, told func(driver string, info *NodeInfo)) *Drivers {
	return &Drivers{check: check, told: told, known: map[string]plugins.Plugin{}}
}

const (
	maxName     = 63
	infoTimeout = 15 * time.Second
)

// named is what the interface has names of drivers look like. They become folders.
var named = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$`)

// Register implements plugins.Kind.
func (d *Drivers) Register(ctx context.Context, p plugins.Plugin) error {
	if len(p.Name) > maxName || !named.MatchString(p.Name) {
		return fmt.Errorf("%q is no name of a CSI driver: it has at most %d letters, digits, dots, dashes and underscores: %w", p.Name, maxName, errdefs.ErrInvalidArgument)
	}
	if !supported(p.Versions) {
		return fmt.Errorf("it serves the versions %q of the CSI, and this node calls drivers by version 1: %w", p.Versions, errdefs.ErrUnimplemented)
	}
	info, err := infoAt(ctx, p.Name, p.Endpoint)
	if err != nil {
		return err
	}
	if err := d.check(p.Name, info); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[p.Name] = p
	d.told(p.Name, &info)
	return nil
}

func infoAt(ctx context.Context, driver, endpoint string) (NodeInfo, error) {
	at := New(Config{Socket: func(string) (string, error) { return endpoint, nil }, Timeout: infoTimeout})
	return at.Info(ctx, driver)
}

// Info asks a driver that has registered what it says of the node now.
func (d *Drivers) Info(ctx context.Context, driver string) (NodeInfo, error) {
	endpoint, err := d.Socket(driver)
	if err != nil {
		return NodeInfo{}, fmt.Errorf("CSI driver %s: %w", driver, err)
	}
	return infoAt(ctx, driver, endpoint)
}

// supported says whether one of the versions is called here.
func supported(versions []string) bool {
	for _, text := range versions {
		if v, err := version.ParseGeneric(text); err == nil && v.Major() == 1 {
			return true
		}
	}
	return false
}

// Unregister implements plugins.Kind. What is registered by another socket meanwhile
// stays.
func (d *Drivers) Unregister(p plugins.Plugin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[p.Name].Socket != p.Socket {
		return
	}
	delete(d.known, p.Name)
	d.told(p.Name, nil)
}

// Socket is where a driver is called; see Config.
func (d *Drivers) Socket(driver string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok := d.known[driver]
	if !ok {
		return "", fmt.Errorf("it is not registered on this node; does its node plugin run here?: %w", errdefs.ErrNotFound)
	}
	return p.Endpoint, nil
}
