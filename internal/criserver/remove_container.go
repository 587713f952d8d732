package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer removes the container, by force if it runs. A container that
// is not there is no error.
func (s *Server) RemoveContainer(ctx context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	id, err := s.containerID(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &cri.RemoveContainerResponse{}, s.cfg.Containers.RemoveContainer(ctx, id)
}
