package criserver

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamPodSandboxMetrics is ListPodSandboxMetrics for lists that no message can hold.
func (s *Server) StreamPodSandboxMetrics(_ *cri.StreamPodSandboxMetricsRequest, out grpc.ServerStreamingServer[cri.StreamPodSandboxMetricsResponse]) error {
	all, err := s.ListPodSandboxMetrics(out.Context(), &cri.ListPodSandboxMetricsRequest{})
	if err != nil {
		return err
	}
	return inParts(all.PodMetrics, func(part []*cri.PodSandboxMetrics) error {
		return out.Send(&cri.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}
