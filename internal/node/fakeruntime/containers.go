package fakeruntime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

// Containers are the statuses of all that there are, by id.
func (f *Runtime) Containers() []*runtimeapi.ContainerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*runtimeapi.ContainerStatus
	for _, c := range sorted(f.state.containers) {
		out = append(out, c.status)
	}
	return out
}

// Config is what the attempts at a container were made of, POD/CONTAINER, by id.
func (f *Runtime) Config(name string) []*runtimeapi.ContainerConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*runtimeapi.ContainerConfig
	for _, c := range sorted(f.state.containers) {
		if c.name == name {
			out = append(out, c.config)
		}
	}
	return out
}

// Exit ends the attempt at a container that runs, POD/CONTAINER, by itself.
func (f *Runtime) Exit(name string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, c := range f.state.containers {
		if c.name == name {
			f.end(id, code)
		}
	}
}

// CreateContainer implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	name := r.SandboxConfig.Metadata.Name + "/" + r.Config.Metadata.Name
	err := f.begin(ctx, "create "+name)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	id := f.state.id("c")
	f.state.containers[id] = &container{
		sandbox: r.PodSandboxId, name: name, config: r.Config,
		status: &runtimeapi.ContainerStatus{
			Id: id, Metadata: r.Config.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
			Labels: r.Config.Labels, Annotations: r.Config.Annotations, Image: r.Config.Image,
			LogPath: filepath.Join(r.SandboxConfig.LogDirectory, r.Config.LogPath), Resources: resources(r.Config.GetLinux().GetResources()),
		},
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// change makes a new status of a container. The caller holds mu.
func (f *Runtime) change(id string, change func(*runtimeapi.ContainerStatus)) {
	c := f.state.containers[id].status
	out := &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.StartedAt, FinishedAt: c.FinishedAt,
		ExitCode: c.ExitCode, Reason: c.Reason, Labels: c.Labels, Annotations: c.Annotations, Image: c.Image, LogPath: c.LogPath, Resources: c.Resources,
	}
	change(out)
	f.state.containers[id].status = out
}

// containerName is POD/CONTAINER, or the id of one that is not there. The caller does not
// hold mu.
func (f *Runtime) containerName(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.state.containers[id]; c != nil {
		return c.name
	}
	return id
}

// StartContainer implements runtimeapi.RuntimeServiceClient. A container writes a line
// and runs on, or ends at once if its first argument is "exit CODE". One that is to fail has
// ended, and has no time when it started, as one of runc, crun or containerd.
func (f *Runtime) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	err := f.begin(ctx, "start "+f.containerName(r.ContainerId))
	defer f.mu.Unlock()
	if err != nil {
		if f.state.containers[r.ContainerId] != nil {
			f.change(r.ContainerId, func(c *runtimeapi.ContainerStatus) {
				c.State, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
				c.ExitCode, c.Reason = 128, "StartError"
			})
		}
		return nil, err
	}
	c := f.state.containers[r.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no container "+r.ContainerId)
	}
	f.change(r.ContainerId, func(c *runtimeapi.ContainerStatus) {
		c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	})
	line := fmt.Sprintf("%s stdout F %s says hello %d\n", time.Now().UTC().Format(time.RFC3339Nano), c.config.Metadata.Name, c.config.Metadata.Attempt)
	if err := os.WriteFile(c.status.LogPath, []byte(line), 0o600); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	f.tell(c.sandbox, r.ContainerId, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	code := int32(0)
	if n, _ := fmt.Sscanf(strings.Join(c.config.Args, " "), "exit %d", &code); n == 1 {
		f.end(r.ContainerId, code)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// end ends a container that runs. The caller holds mu.
func (f *Runtime) end(id string, code int32) {
	c := f.state.containers[id]
	if c == nil || c.status.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	f.change(id, func(c *runtimeapi.ContainerStatus) {
		c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
		if c.Reason = "Completed"; code != 0 {
			c.Reason = "Error"
		}
	})
	f.tell(c.sandbox, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// StopContainer implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	err := f.begin(ctx, fmt.Sprintf("stop %s in %ds", f.containerName(r.ContainerId), r.Timeout))
	defer f.mu.Unlock()
	if err == nil && f.stubborn && r.Timeout > 0 {
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		case <-time.After(time.Duration(r.Timeout) * time.Second):
		}
		f.mu.Lock()
	}
	if err == nil {
		f.end(r.ContainerId, 143)
	}
	return &runtimeapi.StopContainerResponse{}, err
}

// RemoveContainer implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	err := f.begin(ctx, "remove "+f.containerName(r.ContainerId))
	defer f.mu.Unlock()
	if err == nil {
		delete(f.state.containers, r.ContainerId)
	}
	return &runtimeapi.RemoveContainerResponse{}, err
}

// ListContainers implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	err := f.ask()
	defer f.mu.Unlock()
	if uid := r.GetFilter().GetLabelSelector()[podspec.LabelPodUID]; uid != "" && err == nil {
		err = f.wait(ctx, "look at "+uid)
	}
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.ListContainersResponse{}
	for _, c := range sorted(f.state.containers) {
		s, filter := c.status, r.GetFilter()
		if !matches(s.Labels, filter.GetLabelSelector()) || filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox {
			continue
		}
		out.Containers = append(out.Containers, &runtimeapi.Container{
			Id: s.Id, PodSandboxId: c.sandbox, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations, Image: s.Image,
		})
	}
	return out, nil
}

// resources are those of a container as a runtime tells them.
func resources(r *runtimeapi.LinuxContainerResources) *runtimeapi.ContainerResources {
	return &runtimeapi.ContainerResources{Linux: r}
}

// UpdateContainerResources implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	err := f.begin(ctx, "resize "+f.containerName(r.ContainerId))
	defer f.mu.Unlock()
	if err == nil && f.state.containers[r.ContainerId] != nil {
		f.change(r.ContainerId, func(s *runtimeapi.ContainerStatus) { s.Resources = resources(r.GetLinux()) })
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, err
}

// Use has a container use so much memory, in bytes.
func (f *Runtime) Use(name string, bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.state.containers {
		if c.name == name {
			c.uses = bytes
		}
	}
}

// ContainerStats implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) ContainerStats(_ context.Context, r *runtimeapi.ContainerStatsRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatsResponse, error) {
	err := f.ask()
	defer f.mu.Unlock()
	c := f.state.containers[r.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no container "+r.ContainerId)
	}
	uses := &runtimeapi.MemoryUsage{UsageBytes: &runtimeapi.UInt64Value{Value: c.uses}}
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{Memory: uses}}, err
}

// ReopenContainerLog implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest, _ ...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	err := f.begin(ctx, "reopen "+f.containerName(r.ContainerId))
	defer f.mu.Unlock()
	if c := f.state.containers[r.ContainerId]; c != nil && err == nil {
		err = os.WriteFile(c.status.GetLogPath(), nil, 0o640)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, err
}

// UpdatePodSandboxResources implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	err := f.begin(ctx, "resize sandbox "+f.nameOf(r.PodSandboxId))
	defer f.mu.Unlock()
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, err
}

// ContainerStatus implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	err := f.ask()
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if c := f.state.containers[r.ContainerId]; c != nil {
		return &runtimeapi.ContainerStatusResponse{Status: c.status}, f.fail["status "+c.name]
	}
	return nil, status.Error(codes.NotFound, "no container "+r.ContainerId)
}

// CheckpointContainer implements runtimeapi.RuntimeServiceClient. The archive says which
// container it is of.
func (f *Runtime) CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	name := f.containerName(r.ContainerId)
	err := f.begin(ctx, "checkpoint "+name)
	f.mu.Unlock()
	if err == nil {
		err = os.WriteFile(r.Location, []byte(name), 0o600)
	}
	return &runtimeapi.CheckpointContainerResponse{}, err
}

// ExecSync implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	name := f.containerName(r.ContainerId)
	err := f.begin(ctx, "exec "+name+" "+strings.Join(r.Cmd, " "))
	c, do := f.state.containers[r.ContainerId], f.exec
	runs := c != nil && c.status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	f.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case !runs:
		return nil, status.Error(codes.FailedPrecondition, "the container does not run")
	case do == nil:
		return &runtimeapi.ExecSyncResponse{}, nil
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Timeout)*time.Second)
		defer cancel()
	}
	code, err := do(ctx, name, r.Cmd)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return &runtimeapi.ExecSyncResponse{ExitCode: code}, nil
}
