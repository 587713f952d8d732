package criserver

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamPodSandboxStats is ListPodSandboxStats for lists that no message can hold.
func (s *Server) StreamPodSandboxStats(r *cri.StreamPodSandboxStatsRequest, out grpc.ServerStreamingServer[cri.StreamPodSandboxStatsResponse]) error {
	all, err := s.ListPodSandboxStats(out.Context(), &cri.ListPodSandboxStatsRequest{Filter: r.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.Stats, func(part []*cri.PodSandboxStats) error {
		return out.Send(&cri.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}
