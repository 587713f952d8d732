package fakeruntime

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// backlog is how many events a listener may be behind; those beyond are lost to it.
const backlog = 1000

// tell tells everybody of a change. The caller holds mu.
func (f *Runtime) tell(sandbox, id string, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: f.state.sandboxes[sandbox],
	}
	for l := range f.listeners {
		select {
		case l <- e:
		default:
		}
	}
}

type stream struct {
	grpc.ClientStream
	ended  <-chan struct{}
	events chan *runtimeapi.ContainerEventResponse
}

// Header implements grpc.ClientStream.
func (s *stream) Header() (metadata.MD, error) { return nil, nil }

// Recv implements grpc.ServerStreamingClient.
func (s *stream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	select {
	case e := <-s.events:
		return e, nil
	case <-s.ended:
		return nil, io.EOF
	}
}

// GetContainerEvents implements runtimeapi.RuntimeServiceClient.
func (f *Runtime) GetContainerEvents(ctx context.Context, _ *runtimeapi.GetEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	s := &stream{ended: ctx.Done(), events: make(chan *runtimeapi.ContainerEventResponse, backlog)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[s.events] = true
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listeners, s.events)
	})
	return s, nil
}
