// Package deviceplugin is a device plugin for tests: it serves the interface by gRPC on a
// unix socket and registers at the node's, as real ones do.
package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin is one. Fields are set before it is served.
type Plugin struct {
	api.UnimplementedDevicePluginServer
	Resource string
	Options  *api.DevicePluginOptions
	// Prefers are the devices that it would rather give.
	Prefers []string
	// Nodes are the NUMA nodes that it tells of devices.
	Nodes map[string][]int64
	// Gives is what a container is given for devices; nil for something of each kind.
	Gives func(ids []string) *api.ContainerAllocateResponse

	mu      sync.Mutex
	devices map[string]bool
	changed chan struct{} // closed when devices are others
	calls   []string
	fail    error
	stop    func()
}

// New makes a plugin with devices that work.
func New(resource string, ids ...string) *Plugin {
	p := &Plugin{Resource: resource, devices: map[string]bool{}, changed: make(chan struct{}), Options: &api.DevicePluginOptions{}}
	for _, id := range ids {
		p.devices[id] = true
	}
	return p
}

// Socket is the path of its socket in a folder.
func (p *Plugin) Socket(folder string) string {
	return filepath.Join(folder, strings.ReplaceAll(p.Resource, "/", "-")+".sock")
}

// Serve begins to serve in a folder. It ends with the test, or by Stop.
func (p *Plugin) Serve(t *testing.T, folder string) {
	t.Helper()
	p.Stop()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(p.Socket(folder))
	l, err := net.Listen("unix", p.Socket(folder))
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan struct{})
	api.RegisterDevicePluginServer(server, p)
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	p.stop = func() {
		server.Stop()
		<-done
	}
	t.Cleanup(p.Stop)
}

// Register tells the node of itself, once that is there.
func (p *Plugin) Register(t *testing.T, folder string) error {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(p.Socket(folder)), ResourceName: p.Resource, Options: p.Options,
	}, grpc.WaitForReady(true))
	return err
}

// Stop ends it.
func (p *Plugin) Stop() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// Set says whether a device works.
func (p *Plugin) Set(id string, works bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices[id] = works
	close(p.changed)
	p.changed = make(chan struct{})
}

// Fail has calls about devices fail; nil has them succeed again.
func (p *Plugin) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// Calls are those about devices so far, as "Allocate a,b".
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *Plugin) called(name string, ids []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, name+" "+strings.Join(ids, ","))
	return p.fail
}

// GetDevicePluginOptions tells the options.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return p.Options, nil
}

// ListAndWatch tells the devices, and again when they change.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		r, changed := &api.ListAndWatchResponse{}, p.changed
		for _, id := range slices.Sorted(maps.Keys(p.devices)) {
			d := &api.Device{ID: id, Health: api.Unhealthy}
			if p.devices[id] {
				d.Health = api.Healthy
			}
			for _, node := range p.Nodes[id] {
				d.Topology = &api.TopologyInfo{Nodes: append(d.GetTopology().GetNodes(), &api.NUMANode{ID: node})}
			}
			r.Devices = append(r.Devices, d)
		}
		p.mu.Unlock()
		if err := stream.Send(r); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// GetPreferredAllocation tells what it prefers.
func (p *Plugin) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	q := r.GetContainerRequests()[0]
	ids := fmt.Sprintf("%s must %s size %d", strings.Join(q.GetAvailableDeviceIDs(), ","), strings.Join(q.GetMustIncludeDeviceIDs(), ","), q.GetAllocationSize())
	if err := p.called("Prefer", []string{ids}); err != nil {
		return nil, err
	}
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: p.Prefers}}}, nil
}

// Allocate gives each device as a file, a variable, a mount, an annotation and by CDI, or
// what Gives says.
func (p *Plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	if err := p.called("Allocate", ids); err != nil {
		return nil, err
	}
	if p.Gives != nil {
		return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{p.Gives(ids)}}, nil
	}
	out := &api.ContainerAllocateResponse{
		Envs: map[string]string{"DEVICES": strings.Join(ids, ",")}, Annotations: map[string]string{"example.com/devices": strings.Join(ids, ",")},
		Mounts: []*api.Mount{{ContainerPath: "/lib/driver", HostPath: "/opt/driver", ReadOnly: true}},
	}
	for _, id := range ids {
		out.Devices = append(out.Devices, &api.DeviceSpec{ContainerPath: "/dev/" + id, HostPath: "/dev/host-" + id, Permissions: "rw"})
		out.CdiDevices = append(out.CdiDevices, &api.CDIDevice{Name: p.Resource + "=" + id})
	}
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{out}}, nil
}

// PreStartContainer makes devices ready.
func (p *Plugin) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, p.called("PreStart", r.GetDevicesIds())
}
