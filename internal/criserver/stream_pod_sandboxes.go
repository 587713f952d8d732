package criserver

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamPodSandboxes is ListPodSandbox for lists that no message can hold.
func (s *Server) StreamPodSandboxes(r *cri.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[cri.StreamPodSandboxesResponse]) error {
	all, err := s.ListPodSandbox(out.Context(), &cri.ListPodSandboxRequest{Filter: r.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.Items, func(part []*cri.PodSandbox) error {
		return out.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}
