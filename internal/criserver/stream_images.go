package criserver

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamImages is ListImages for lists that no message can hold.
func (s *Server) StreamImages(r *cri.StreamImagesRequest, out grpc.ServerStreamingServer[cri.StreamImagesResponse]) error {
	all, err := s.ListImages(out.Context(), &cri.ListImagesRequest{Filter: r.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.Images, func(part []*cri.Image) error {
		return out.Send(&cri.StreamImagesResponse{Images: part})
	})
}
