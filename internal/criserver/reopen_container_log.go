package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReopenContainerLog makes the container's log anew, after somebody moved the old
// file away.
func (s *Server) ReopenContainerLog(ctx context.Context, r *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	id, err := s.containerID(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &cri.ReopenContainerLogResponse{}, s.cfg.Containers.ReopenLog(ctx, id)
}
