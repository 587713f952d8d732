package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemovePodSandbox removes the pod and its containers, by force if they run. A
// pod that is not there is no error.
func (s *Server) RemovePodSandbox(ctx context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	id, err := s.podID(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &cri.RemovePodSandboxResponse{}, s.cfg.Pods.RemovePod(ctx, id)
}
