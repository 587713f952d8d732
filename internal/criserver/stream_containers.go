package criserver

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamContainers is ListContainers for lists that no message can hold.
func (s *Server) StreamContainers(r *cri.StreamContainersRequest, out grpc.ServerStreamingServer[cri.StreamContainersResponse]) error {
	all, err := s.ListContainers(out.Context(), &cri.ListContainersRequest{Filter: r.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.Containers, func(part []*cri.Container) error {
		return out.Send(&cri.StreamContainersResponse{Containers: part})
	})
}
