package agent

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

// fake is a runtime in memory that tells events. It outlives the agents that use it.
type fake struct {
	runtimeapi.RuntimeServiceClient

	mu         sync.Mutex
	number     int
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	boxOf      map[string]string // container to sandbox
	calls      []string          // "create a/main", in order
	fail       map[string]error  // by such a text
	hang       map[string]chan struct{}
	listeners  map[chan *runtimeapi.ContainerEventResponse]bool
	asked      int             // calls that change nothing
	sick       map[string]bool // containers in which every command fails
}

func newFake() *fake {
	return &fake{
		sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*runtimeapi.ContainerStatus{}, boxOf: map[string]string{},
		fail: map[string]error{}, hang: map[string]chan struct{}{}, listeners: map[chan *runtimeapi.ContainerEventResponse]bool{},
		sick: map[string]bool{},
	}
}

// begin notes a call, and gives what was prepared for it. The caller holds mu after it.
func (f *fake) begin(ctx context.Context, text string) error {
	f.mu.Lock()
	f.calls = append(f.calls, text)
	if hang := f.hang[text]; hang != nil {
		f.mu.Unlock()
		select {
		case <-hang:
		case <-ctx.Done():
			f.mu.Lock()
			return ctx.Err()
		}
		f.mu.Lock()
	}
	return f.fail[text]
}

func (f *fake) did(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if strings.HasPrefix(c, prefix) {
			out = append(out, c)
		}
	}
	return out
}

func (f *fake) id(kind string) string {
	f.number++
	return fmt.Sprintf("%s%d", kind, f.number)
}

// tell tells everybody of a change. The caller holds mu.
func (f *fake) tell(sandbox, id string, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: f.sandboxes[sandbox]}
	for l := range f.listeners {
		select {
		case l <- e:
		default:
		}
	}
}

type stream struct {
	grpc.ClientStream
	ctx    context.Context
	events chan *runtimeapi.ContainerEventResponse
}

func (s *stream) Header() (metadata.MD, error) { return nil, nil }

func (s *stream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	select {
	case e := <-s.events:
		return e, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

func (f *fake) GetContainerEvents(ctx context.Context, _ *runtimeapi.GetEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	s := &stream{ctx: ctx, events: make(chan *runtimeapi.ContainerEventResponse, 1000)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[s.events] = true
	return s, nil
}

func (f *fake) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	err := f.begin(ctx, "run "+r.Config.Metadata.Name)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	id := f.id("s")
	f.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: r.Config.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
		Labels: r.Config.Labels, Annotations: r.Config.Annotations, RuntimeHandler: r.RuntimeHandler,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.9.8.7"},
	}
	f.tell(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (f *fake) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	err := f.begin(ctx, "stop sandbox "+r.PodSandboxId)
	defer f.mu.Unlock()
	if s := f.sandboxes[r.PodSandboxId]; s != nil && err == nil {
		f.sandboxes[r.PodSandboxId] = with(s, func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
		for id, box := range f.boxOf {
			if box == r.PodSandboxId {
				f.end(id, 137)
			}
		}
		f.tell(r.PodSandboxId, r.PodSandboxId, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return &runtimeapi.StopPodSandboxResponse{}, err
}

func with(s *runtimeapi.PodSandboxStatus, change func(*runtimeapi.PodSandboxStatus)) *runtimeapi.PodSandboxStatus {
	out := &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		RuntimeHandler: s.RuntimeHandler, Network: s.Network,
	}
	change(out)
	return out
}

func (f *fake) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	err := f.begin(ctx, "remove sandbox "+r.PodSandboxId)
	defer f.mu.Unlock()
	if err == nil {
		for id, box := range f.boxOf {
			if box == r.PodSandboxId {
				delete(f.containers, id)
				delete(f.boxOf, id)
			}
		}
		delete(f.sandboxes, r.PodSandboxId)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, err
}

func (f *fake) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if s := f.sandboxes[r.PodSandboxId]; s != nil {
		return &runtimeapi.PodSandboxStatusResponse{Status: s}, nil
	}
	return nil, status.Error(codes.NotFound, "no sandbox "+r.PodSandboxId)
}

func (f *fake) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if err := f.fail["list"]; err != nil {
		return nil, err
	}
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.sandboxes)) {
		if s := f.sandboxes[id]; matches(s.Labels, r.GetFilter().GetLabelSelector()) {
			out.Items = append(out.Items, &runtimeapi.PodSandbox{Id: id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations})
		}
	}
	return out, nil
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (f *fake) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	err := f.begin(ctx, "create "+r.SandboxConfig.Metadata.Name+"/"+r.Config.Metadata.Name)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	id := f.id("c")
	f.containers[id] = &runtimeapi.ContainerStatus{
		Id: id, Metadata: r.Config.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
		Labels: r.Config.Labels, Annotations: r.Config.Annotations, Image: r.Config.Image,
	}
	f.boxOf[id] = r.PodSandboxId
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// change makes a new status of a container: the old one may be read by others.
func (f *fake) change(id string, change func(*runtimeapi.ContainerStatus)) {
	c := f.containers[id]
	out := &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.StartedAt, FinishedAt: c.FinishedAt,
		ExitCode: c.ExitCode, Reason: c.Reason, Labels: c.Labels, Annotations: c.Annotations, Image: c.Image,
	}
	change(out)
	f.containers[id] = out
}

func (f *fake) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	err := f.begin(ctx, "start "+r.ContainerId)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f.change(r.ContainerId, func(c *runtimeapi.ContainerStatus) {
		c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	})
	f.tell(f.boxOf[r.ContainerId], r.ContainerId, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.StartContainerResponse{}, nil
}

// end ends a container that runs. The caller holds mu.
func (f *fake) end(id string, code int32) {
	if f.containers[id].GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	f.change(id, func(c *runtimeapi.ContainerStatus) {
		c.State, c.ExitCode, c.FinishedAt, c.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano(), "Error"
	})
	f.tell(f.boxOf[id], id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// exits ends the latest attempt at a container by itself.
func (f *fake) exits(pod, name string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, c := range f.containers {
		if c.Metadata.Name == name && f.sandboxes[f.boxOf[id]].GetMetadata().GetName() == pod {
			f.end(id, code)
		}
	}
}

func (f *fake) ExecSync(_ context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sick[f.containers[r.ContainerId].GetMetadata().GetName()] {
		return &runtimeapi.ExecSyncResponse{ExitCode: 1}, nil
	}
	return &runtimeapi.ExecSyncResponse{}, nil
}

func (f *fake) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	f.mu.Lock()
	c := f.containers[r.ContainerId]
	f.mu.Unlock()
	err := f.begin(ctx, fmt.Sprintf("stop %s in %ds", c.GetMetadata().GetName(), r.Timeout))
	defer f.mu.Unlock()
	if err == nil {
		f.end(r.ContainerId, 143)
	}
	return &runtimeapi.StopContainerResponse{}, err
}

func (f *fake) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	err := f.begin(ctx, "remove "+r.ContainerId)
	defer f.mu.Unlock()
	if err == nil {
		delete(f.containers, r.ContainerId)
		delete(f.boxOf, r.ContainerId)
	}
	return &runtimeapi.RemoveContainerResponse{}, err
}

func (f *fake) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	hang := f.hang["look at "+r.GetFilter().GetLabelSelector()[podspec.LabelPodUID]]
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	out := &runtimeapi.ListContainersResponse{}
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		c, filter := f.containers[id], r.GetFilter()
		if !matches(c.Labels, filter.GetLabelSelector()) || filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != f.boxOf[id] {
			continue
		}
		out.Containers = append(out.Containers, &runtimeapi.Container{
			Id: id, PodSandboxId: f.boxOf[id], Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations,
		})
	}
	return out, nil
}

func (f *fake) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if c := f.containers[r.ContainerId]; c != nil {
		return &runtimeapi.ContainerStatusResponse{Status: c}, nil
	}
	return nil, status.Error(codes.NotFound, "no container "+r.ContainerId)
}
