package criserver

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamContainerStats is ListContainerStats for lists that no message can hold.
func (s *Server) StreamContainerStats(r *cri.StreamContainerStatsRequest, out grpc.ServerStreamingServer[cri.StreamContainerStatsResponse]) error {
	all, err := s.ListContainerStats(out.Context(), &cri.ListContainerStatsRequest{Filter: r.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.Stats, func(part []*cri.ContainerStats) error {
		return out.Send(&cri.StreamContainerStatsResponse{ContainerStats: part})
	})
}
