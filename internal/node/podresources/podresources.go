// Package podresources tells programs of the node which devices each container has, and which
// ones the node could give, at the socket where a kubelet does (KEP-606, KEP-1884, KEP-3695).
// Exporters of metrics of devices and network plugins ask there.
//
// It answers of processors and memory that no container has any for itself: the agent has
// no such policies. Every answer is of what is in memory, so that no pod that hangs holds it up.
package podresources

import (
	"context"
	"io"
	"path/filepath"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"fairlead.run/internal/node/devices"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/sockets"
	"fairlead.run/internal/telemetry"
)

// A kubelet answers so many requests in a second, and so many at once.
const (
	perSecond = 100
	atOnce    = 10
)

// Config is what a Server works with. All fields are required.
type Config struct {
	// Folder is where the socket is, kubelet.sock.
	Folder string
	// Pods are those of the node, also those that have ended.
	Pods func() []*corev1.Pod
	// Ended says of a pod that nothing of it runs any more, nor will.
	Ended func(types.UID) bool
	// Given are the devices of a container, sorted.
	Given func(pod types.UID, container string) []devices.Device
	// Working are the devices that the node could give, sorted, also those that are given.
	Working func() []devices.Device
	// Failed is told why the socket is not served. It must not wait.
	Failed func(error)
}

// Server answers. Make it by New.
type Server struct {
	cfg      Config
	registry telemetry.Registry
	all      *telemetry.Counter
	// By endpoint.
	requests, errors map[string]*telemetry.Counter
}

// The endpoints, as metrics name them.
const (
	list        = "list"
	get         = "get"
	allocatable = "get_allocatable"
)

// New makes a Server that nobody has asked yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, requests: map[string]*telemetry.Counter{}, errors: map[string]*telemetry.Counter{}}
	const prefix, version = "kubelet_pod_resources_endpoint_", "server_api_version"
	s.all = s.registry.Counter(prefix+"requests_total", "Requests to the pod resources API.", version)
	for _, name := range []string{list, get, allocatable} {
		s.requests[name] = s.registry.Counter(prefix+"requests_"+name, "Requests to an endpoint of the pod resources API.", version)
		s.errors[name] = s.registry.Counter(prefix+"errors_"+name, "Requests to an endpoint of the pod resources API that have failed.", version)
	}
	return s
}

// Metrics writes what was counted, in the text format of Prometheus.
func (s *Server) Metrics(to io.Writer) error { return s.registry.Write(to) }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	sockets.Socket{Path: filepath.Join(s.cfg.Folder, "kubelet.sock"), Server: s.server, Failed: s.cfg.Failed}.Serve(ctx)
	return nil
}

func (s *Server) server() *grpc.Server {
	limit := rate.NewLimiter(perSecond, atOnce)
	out := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, status.Errorf(codes.ResourceExhausted, "there are more than %d requests a second; ask again later", perSecond)
		}
		return handle(ctx, r)
	}))
	v1.RegisterPodResourcesListerServer(out, &stable{Server: s})
	v1alpha1.RegisterPodResourcesListerServer(out, &alpha{Server: s})
	return out
}

func (s *Server) asked(endpoint, version string) {
	s.all.Add(1, version)
	s.requests[endpoint].Add(1, version)
}

// stable is v1.
type stable struct {
	v1.UnimplementedPodResourcesListerServer
	*Server
}

// List tells of all pods that have not ended.
func (s *stable) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	s.asked(list, "v1")
	out := &v1.ListPodResourcesResponse{}
	for _, p := range s.active() {
		out.PodResources = append(out.PodResources, s.of(p))
	}
	return out, nil
}

// Get tells of one pod that has not ended, by its name. Of two the younger has it, as the other
// one ends.
func (s *stable) Get(_ context.Context, r *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	s.asked(get, "v1")
	var found *corev1.Pod
	for _, p := range s.active() {
		if p.Name == r.GetPodName() && p.Namespace == r.GetPodNamespace() && (found == nil || found.CreationTimestamp.Before(&p.CreationTimestamp)) {
			found = p
		}
	}
	if found != nil {
		return &v1.GetPodResourcesResponse{PodResources: s.of(found)}, nil
	}
	s.errors[get].Add(1, "v1")
	return nil, status.Errorf(codes.NotFound, "pod %q in namespace %q is not on this node, or has ended", r.GetPodName(), r.GetPodNamespace())
}

// GetAllocatableResources tells of the devices that work, whoever has them.
func (s *stable) GetAllocatableResources(context.Context, *v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	s.asked(allocatable, "v1")
	return &v1.AllocatableResourcesResponse{Devices: told(s.cfg.Working())}, nil
}

// active are the pods that have not ended.
func (s *Server) active() []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.cfg.Pods() {
		if !s.cfg.Ended(p.UID) {
			out = append(out, p)
		}
	}
	return out
}

// of tells of one pod: of its sidecars, and of its containers. What init containers had is
// with those after them.
func (s *Server) of(p *corev1.Pod) *v1.PodResources {
	out := &v1.PodResources{Name: p.Name, Namespace: p.Namespace}
	add := func(name string) {
		out.Containers = append(out.Containers, &v1.ContainerResources{Name: name, Devices: told(s.cfg.Given(p.UID, name))})
	}
	for i := range p.Spec.InitContainers {
		if plan.Sidecar(&p.Spec.InitContainers[i]) {
			add(p.Spec.InitContainers[i].Name)
		}
	}
	for i := range p.Spec.Containers {
		add(p.Spec.Containers[i].Name)
	}
	return out
}

// told are devices as a kubelet tells them: each by itself, and one that is at several NUMA
// nodes once for each.
func told(all []devices.Device) []*v1.ContainerDevices {
	var out []*v1.ContainerDevices
	for _, d := range all {
		if len(d.Nodes) == 0 {
			out = append(out, &v1.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}})
		}
		for _, node := range d.Nodes {
			out = append(out, &v1.ContainerDevices{
				ResourceName: d.Resource, DeviceIds: []string{d.ID}, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: node}}},
			})
		}
	}
	return out
}

// alpha is v1alpha1, which older programs ask. It knows containers alone, and no topology.
type alpha struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	*Server
}

// List tells of all pods that have not ended.
func (s *alpha) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	s.asked(list, "v1alpha1")
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, p := range s.active() {
		one := &v1alpha1.PodResources{Name: p.Name, Namespace: p.Namespace}
		for i := range p.Spec.Containers {
			ct := &v1alpha1.ContainerResources{Name: p.Spec.Containers[i].Name}
			for _, d := range s.cfg.Given(p.UID, ct.Name) {
				ct.Devices = append(ct.Devices, &v1alpha1.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}})
			}
			one.Containers = append(one.Containers, ct)
		}
		out.PodResources = append(out.PodResources, one)
	}
	return out, nil
}
