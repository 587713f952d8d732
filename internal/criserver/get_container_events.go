package criserver

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

var eventTypes = map[pod.NoticeKind]cri.ContainerEventType{
	pod.NoticeCreated: cri.ContainerEventType_CONTAINER_CREATED_EVENT,
	pod.NoticeStarted: cri.ContainerEventType_CONTAINER_STARTED_EVENT,
	pod.NoticeStopped: cri.ContainerEventType_CONTAINER_STOPPED_EVENT,
	pod.NoticeDeleted: cri.ContainerEventType_CONTAINER_DELETED_EVENT,
}

// GetContainerEvents sends what happens from now on, until the caller or the
// server ends. The header says that nothing will be missed any more.
func (s *Server) GetContainerEvents(_ *cri.GetEventsRequest, out grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	seen, stop := s.cfg.Events.Follow()
	defer stop()
	if err := out.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		select {
		case n, ok := <-seen:
			if !ok {
				return fmt.Errorf("events were not read as quickly as they came, and some are lost; list the pods and begin anew: %w", errdefs.ErrExhausted)
			}
			if err := out.Send(encodeEvent(n)); err != nil {
				return err
			}
		case <-out.Context().Done():
			return out.Context().Err()
		case <-s.ending:
			return fmt.Errorf("the daemon ends, and events with it; begin anew when it is back: %w", errdefs.ErrUnavailable)
		}
	}
}

// encodeEvent has the pod and all its containers as they were at that moment,
// so that who reads events late is told no later state.
func encodeEvent(n pod.Notice) *cri.ContainerEventResponse {
	return &cri.ContainerEventResponse{
		ContainerId:        n.ID,
		ContainerEventType: eventTypes[n.Kind],
		CreatedAt:          nanoseconds(n.At),
		PodSandboxStatus:   encodePodStatus(n.Record),
		ContainersStatuses: encodeStatuses(n.Record),
	}
}

// encodeStatuses describes the containers of a pod that callers may see.
func encodeStatuses(p *pod.Record) []*cri.ContainerStatus {
	var out []*cri.ContainerStatus
	for _, c := range p.Containers {
		if c.State != pod.Creating {
			out = append(out, encodeContainerStatus(p, c))
		}
	}
	return out
}
