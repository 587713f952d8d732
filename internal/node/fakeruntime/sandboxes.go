package fakeruntime

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Address is that of every pod.
const Address = "10.9.8.7"

// Sandboxes are all that there are, by id.
func (f *Runtime) Sandboxes() []*runtimeapi.PodSandboxStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sorted(f.state.sandboxes)
}

// CgroupParent is where the latest sandbox of a pod was asked to be.
func (f *Runtime) CgroupParent(pod string) (parent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range sorted(f.state.configs) {
		if c.GetMetadata().GetName() == pod {
			parent = c.GetLinux().GetCgroupParent()
		}
	}
	return parent
}

// LoseSandbox ends the sandboxes of a pod with all that runs in them, by themselves.
func (f *Runtime) LoseSandbox(pod string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.state.sandboxes {
		if s.GetMetadata().GetName() == pod {
			f.stopSandbox(id)
		}
	}
}

// LoseSandboxAlone ends the sandboxes of a pod, and leaves what runs in them.
func (f *Runtime) LoseSandboxAlone(pod string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.state.sandboxes {
		if s.GetMetadata().GetName() == pod {
			f.state.sandboxes[id] = with(s, func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
			f.tell(id, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		}
	}
}

// Annotate gives the sandboxes of a pod another annotation.
func (f *Runtime) Annotate(pod, key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.state.sandboxes {
		if s.GetMetadata().GetName() == pod {
			f.state.sandboxes[id] = with(s, func(s *runtimeapi.PodSandboxStatus) {
				s.Annotations = map[string]string{key: value}
				for k, v := range f.state.configs[id].GetAnnotations() {
					if k != key {
						s.Annotations[k] = v
					}
				}
			})
		}
	}
}

// with is another status: the old one may be read by others.
func with(s *runtimeapi.PodSandboxStatus, change func(*runtimeapi.PodSandboxStatus)) *runtimeapi.PodSandboxStatus {
	out := &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations,
		RuntimeHandler: s.RuntimeHandler, Network: s.Network,
	}
	change(out)
	return out
}

// RunPodSandbox implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	err := f.begin(ctx, "run "+r.Config.Metadata.Name)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	id := f.state.id("s")
	f.state.configs[id] = r.Config
	f.state.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: r.Config.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
		Labels: r.Config.Labels, Annotations: r.Config.Annotations, RuntimeHandler: r.RuntimeHandler,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: Address},
	}
	f.tell(id, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	f.tell(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// SandboxConfig is what the sandbox of a pod that is there was made of; nil if there is none.
func (f *Runtime) SandboxConfig(pod string) *runtimeapi.PodSandboxConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.state.sandboxes {
		if s.GetMetadata().GetName() == pod && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return f.state.configs[id]
		}
	}
	return nil
}

// nameOf is the pod of a sandbox, or the id of one that is not there. The caller does not
// hold mu.
func (f *Runtime) nameOf(sandbox string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.state.sandboxes[sandbox]; s != nil {
		return s.GetMetadata().GetName()
	}
	return sandbox
}

// StopPodSandbox implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	err := f.begin(ctx, "stop sandbox "+f.nameOf(r.PodSandboxId))
	defer f.mu.Unlock()
	if s := f.state.sandboxes[r.PodSandboxId]; s != nil && s.State == runtimeapi.PodSandboxState_SANDBOX_READY && err == nil {
		f.stopSandbox(r.PodSandboxId)
	}
	return &runtimeapi.StopPodSandboxResponse{}, err
}

// stopSandbox ends a sandbox. The caller holds mu.
func (f *Runtime) stopSandbox(id string) {
	f.state.sandboxes[id] = with(f.state.sandboxes[id], func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
	for c, container := range f.state.containers {
		if container.sandbox == id {
			f.end(c, 137)
		}
	}
	f.tell(id, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// RemovePodSandbox implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	err := f.begin(ctx, "remove sandbox "+f.nameOf(r.PodSandboxId))
	defer f.mu.Unlock()
	if err == nil {
		for id, c := range f.state.containers {
			if c.sandbox == r.PodSandboxId {
				delete(f.state.containers, id)
			}
		}
		delete(f.state.sandboxes, r.PodSandboxId)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, err
}

// PodSandboxStatus implements runtimeapi.RuntimeServiceClient. Which handler the default one
// is it tells as Fairlead does.
func (f *Runtime) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	err := f.ask()
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if s := f.state.sandboxes[r.PodSandboxId]; s != nil {
		out := &runtimeapi.PodSandboxStatusResponse{Status: s}
		if r.Verbose {
			out.Info = map[string]string{"info": fmt.Sprintf(`{"runtimeHandler":%q}`, cmp.Or(s.RuntimeHandler, "runc"))}
		}
		return out, nil
	}
	return nil, status.Error(codes.NotFound, "no sandbox "+r.PodSandboxId)
}

// ListPodSandbox implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	err := f.ask()
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range sorted(f.state.sandboxes) {
		if !matches(s.Labels, r.GetFilter().GetLabelSelector()) || r.GetFilter().GetId() != "" && r.GetFilter().GetId() != s.Id {
			continue
		}
		out.Items = append(out.Items, &runtimeapi.PodSandbox{
			Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
		})
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
