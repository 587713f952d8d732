// Package devices gives containers the devices that they ask for by name, such as
// example.com/gpu. Device plugins have them: they register as with a kubelet, say which
// ones there are and whether they work, and how a container is given one.
//
// Which container has which devices is on disk, in a file for each pod, before a plugin
// is asked for them. What a node has, and what of it is free, is in memory alone:
// plugins tell it again.
package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/plugins"
	"fairlead.run/internal/node/sockets"
)

// Config is what a Manager works with. All fields are required.
type Config struct {
	// Sockets is the folder in which plugins look for the node's socket and put theirs.
	Sockets string
	// Folder is where it is kept who has which devices.
	Folder string
	// Ended says of a pod that it needs no devices any more, or is not here.
	Ended func(types.UID) bool
	// Leaves says of a pod that it is still ending, and that nobody wants it any more: who sends
	// pods counts its devices as free.
	Leaves func(types.UID) bool
	// Changed is that Capacity may be another; it must not wait.
	Changed func()
	// Concerns is that Health may be another for these pods, or that they may have the devices
	// now that they wait for; it must not wait.
	Concerns func(...types.UID)
	// Warn tells by an event of the node what is wrong, once as long as it is the same. It
	// must not wait.
	Warn func(reason, message string)
	Log  *slog.Logger
}

// Reasons of events of the node.
const (
	reasonLost       = "DevicePluginLost"     // it does not say any more which devices it has
	reasonUnreadable = "DeviceRecordsIgnored" // they cannot be read
)

// Manager has the devices of a node. Make it by New.
type Manager struct {
	cfg   Config
	fresh chan struct{} // there is a plugin that nobody follows yet

	mu      sync.Mutex
	began   time.Time
	plugins map[string]*plugin // by resource
	names   map[string]bool    // of resources that there have been
	pods    map[types.UID]*page
	refused map[string]string  // why a plugin was not taken, by resource
	waiting map[types.UID]bool // for devices of pods that leave
}

// New makes a Manager, which finds what one before it has given. What cannot be read is
// told, and counts as not given.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, fresh: make(chan struct{}, 1), began: time.Now(), plugins: map[string]*plugin{}, refused: map[string]string{}, waiting: map[types.UID]bool{}}
	var err error
	if m.names, m.pods, err = load(cfg.Folder); err != nil {
		cfg.Warn(reasonUnreadable, fmt.Sprintf("It is not known of all devices whether they are in use, and one may be given to two pods; delete the pods of these UIDs, and what cannot be read goes with them: %s%s", err, hostpath.Advice(err)))
	}
	return m
}

// Run serves plugins until ctx ends. What containers have stays theirs.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { m.serve(ctx) })
	for _, resource := range m.resources() {
		m.tellLater(resource)
	}
	for {
		for _, p := range m.unattended(ctx) {
			running.Go(func() { m.attend(p) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.fresh:
		}
	}
}

// serve has plugins register at the node's own socket until ctx ends.
func (m *Manager) serve(ctx context.Context) {
	sockets.Socket{
		Path: filepath.Join(m.cfg.Sockets, socketName), Clear: clearSockets,
		Server: func() *grpc.Server {
			server := grpc.NewServer()
			api.RegisterRegistrationServer(server, registration{m: m})
			return server
		},
		Failed: func(err error) {
			m.cfg.Warn(plugins.FailedRegistration, fmt.Sprintf("No device plugin can register, which is tried again: %s%s", err, hostpath.Advice(err)))
		},
	}.Serve(ctx)
}

// clearSockets takes away what an agent before this one has left, as a kubelet does:
// plugins see that there is a new one, and register again.
func clearSockets(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Type() == os.ModeSocket {
			errs = append(errs, os.Remove(filepath.Join(folder, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Owns says that a resource is given out here.
func (m *Manager) Owns(name corev1.ResourceName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[string(name)]
}

// Capacity is how many devices there are, and how many of them work. Of a plugin that is
// away none do. A resource that there was once stays, with 0: left out, its old numbers
// would count.
func (m *Manager) Capacity() (all, work corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, work = corev1.ResourceList{}, corev1.ResourceList{}
	for name := range m.names {
		n, healthy := m.plugins[name].count()
		all[corev1.ResourceName(name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		work[corev1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return all, work
}

// resources are those that there have been.
func (m *Manager) resources() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.names))
}

// count is how many devices a plugin has, which may be nil, and how many of them work.
func (p *plugin) count() (all, work int) {
	if p == nil {
		return 0, 0
	}
	for _, d := range p.devices {
		if d.works && p.connected {
			work++
		}
	}
	return len(p.devices), work
}
