package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/plugins"
)

// PluginType is what device plugins call themselves that register as other plugins do.
const PluginType = "DevicePlugin"

// socketName is the socket that plugins look for.
const socketName = "kubelet.sock"

// plugin has the devices of one resource. The manager's mu guards what may change.
type plugin struct {
	resource, socket string
	options          *api.DevicePluginOptions
	conn             *grpc.ClientConn
	client           api.DevicePluginClient

	stop      context.CancelFunc // nil until it is followed
	stopped   bool
	connected bool
	lost      time.Time       // since when it is not
	devices   map[string]unit // by id
}

// unit is one device, as its plugin tells of it.
type unit struct {
	works bool
	nodes []int64 // the NUMA nodes that it is at, sorted; none if the plugin does not say
}

const (
	// A plugin that ends is called again, first soon and then less so. Most register
	// anew when they start.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// patience is how long a plugin may take over a call. It is the kubelet's for
	// PreStartContainer.
	patience = api.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
)

type registration struct {
	api.UnimplementedRegistrationServer
	m *Manager
}

// Register implements the plugins' side of the protocol.
func (r registration) Register(_ context.Context, q *api.RegisterRequest) (*api.Empty, error) {
	err := checkVersion([]string{q.GetVersion()})
	name := q.GetEndpoint()
	if err == nil && (name == "" || name == "." || name == ".." || name != filepath.Base(name)) {
		err = fmt.Errorf("the endpoint %q is not the name of a socket in the folder of device plugins: %w", name, errdefs.ErrInvalidArgument)
	}
	if err == nil {
		_, err = os.Lstat(filepath.Join(r.m.cfg.Sockets, name)) // it may have been there too early; see clearSockets
	}
	if err == nil {
		err = r.m.add(q.GetResourceName(), filepath.Join(r.m.cfg.Sockets, name), q.GetOptions())
	}
	if r.m.answered(q.GetResourceName(), err); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &api.Empty{}, nil
}

// answered tells of a plugin that was not taken, however often it tries again.
func (m *Manager) answered(resource string, err error) {
	m.mu.Lock()
	was := m.refused[resource]
	if delete(m.refused, resource); err != nil {
		m.refused[resource] = err.Error()
	}
	m.mu.Unlock()
	if err != nil && err.Error() != was {
		m.cfg.Warn(plugins.FailedRegistration, fmt.Sprintf("The device plugin of %q is not taken: %s%s", resource, err, hostpath.Advice(err)))
	}
}

func checkVersion(versions []string) error {
	if !slices.Contains(versions, api.Version) {
		return fmt.Errorf("it serves the versions %q of the interface of device plugins, and this node calls them by %s: %w", versions, api.Version, errdefs.ErrUnimplemented)
	}
	return nil
}

// Register implements plugins.Kind.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	if err := checkVersion(p.Versions); err != nil {
		return err
	}
	conn, err := dial(p.Endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	options, err := api.NewDevicePluginClient(conn).GetDevicePluginOptions(ctx, &api.Empty{})
	if err != nil {
		return fmt.Errorf("ask the plugin for its options: %w", err)
	}
	return m.add(p.Name, p.Endpoint, options)
}

// Unregister implements plugins.Kind. A plugin that has taken its place meanwhile stays.
func (m *Manager) Unregister(p plugins.Plugin) {
	m.mu.Lock()
	has := m.plugins[p.Name]
	if has != nil && has.socket == p.Endpoint {
		m.end(has)
	}
	m.mu.Unlock()
	m.cfg.Changed()
}

func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return conn, nil
}

// isExtended says whether a name is one of resources that are no Kubernetes' own.
func isExtended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && len(validation.IsQualifiedName(name)) == 0
}

// add takes a plugin in the place of one before it.
func (m *Manager) add(name, socket string, options *api.DevicePluginOptions) error {
	if !isExtended(name) {
		return fmt.Errorf("%q is no name of a resource; it is to be like example.com/gpu: %w", name, errdefs.ErrInvalidArgument)
	}
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	p := &plugin{resource: name, socket: socket, options: options, conn: conn, client: api.NewDevicePluginClient(conn), devices: map[string]unit{}, lost: time.Now()}
	m.mu.Lock()
	if old := m.plugins[name]; old != nil {
		m.end(old)
		p.devices = old.devices // until it has told its own
	}
	m.plugins[name] = p
	known := m.names[name]
	m.names[name] = true
	names := maps.Clone(m.names)
	m.mu.Unlock()
	if !known {
		err = writeNames(m.cfg.Folder, names)
	}
	select {
	case m.fresh <- struct{}{}:
	default:
	}
	m.cfg.Changed()
	return err
}

// end ends what follows a plugin. The caller holds mu.
func (m *Manager) end(p *plugin) {
	p.stopped = true
	m.disconnect(p)
	if p.stop != nil {
		p.stop()
	}
}

func (m *Manager) disconnect(p *plugin) {
	if p.connected {
		p.connected, p.lost = false, time.Now()
		m.tellLater(p.resource)
	}
}

// followed is a plugin with the context of who follows it.
type followed struct {
	*plugin
	run func(follow func(context.Context))
}

// unattended are the plugins that nobody follows yet.
func (m *Manager) unattended(ctx context.Context) []followed {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []followed
	for _, p := range m.plugins {
		if p.stop != nil || p.stopped {
			continue
		}
		own, stop := context.WithCancel(ctx)
		p.stop = stop
		out = append(out, followed{p, func(follow func(context.Context)) {
			defer stop()
			follow(own)
		}})
	}
	return out
}

// attend follows what a plugin says of its devices until it is replaced or gone.
func (m *Manager) attend(f followed) {
	defer func() { _ = f.conn.Close() }()
	f.run(func(ctx context.Context) {
		told, lost := "", false
		for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
			began := time.Now()
			err := m.follow(ctx, f.plugin)
			if ctx.Err() != nil {
				return
			}
			m.mu.Lock()
			m.disconnect(f.plugin)
			away := time.Since(f.lost) >= awayPatience
			m.mu.Unlock()
			m.cfg.Changed()
			if away && !lost {
				m.cfg.Warn(reasonLost, fmt.Sprintf("The plugin of %s does not say any more which devices it has, so that none can be given to pods; see the log of its pod: %s", f.resource, err))
			}
			lost = away
			if text := err.Error(); text != told {
				m.cfg.Log.Info("a device plugin does not say any more which devices it has, and is called again", "resource", f.resource, "socket", f.socket, "error", err)
				told = text
			}
			if time.Since(began) > lastRetry {
				pause = firstRetry
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

// follow listens to a plugin until that ends.
func (m *Manager) follow(ctx context.Context, p *plugin) error {
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		return fmt.Errorf("ask for devices: %w", err)
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("listen for devices: %w", err)
		}
		devices := map[string]unit{}
		for _, d := range list.GetDevices() {
			u := unit{works: d.GetHealth() == api.Healthy}
			for _, n := range d.GetTopology().GetNodes() {
				u.nodes = append(u.nodes, n.GetID())
			}
			slices.Sort(u.nodes)
			devices[d.GetID()] = u
		}
		m.mu.Lock()
		news := !p.stopped && (!p.connected || !maps.EqualFunc(p.devices, devices, func(a, b unit) bool { return a.works == b.works }))
		if !p.stopped {
			p.devices, p.connected = devices, true
		}
		m.mu.Unlock()
		m.cfg.Changed()
		if news {
			m.tell(p.resource)
		}
	}
}

// errAway is that nobody can be asked for devices now.
var errAway = errors.New("its device plugin is away")
