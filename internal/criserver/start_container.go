package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StartContainer starts a container that was created.
func (s *Server) StartContainer(ctx context.Context, r *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	id, err := s.containerID(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &cri.StartContainerResponse{}, s.cfg.Containers.StartContainer(ctx, id)
}
