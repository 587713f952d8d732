package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopPodSandbox ends what runs in the pod and frees its network. A pod that is
// not there, or was stopped before, is no error.
func (s *Server) StopPodSandbox(ctx context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	id, err := s.podID(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &cri.StopPodSandboxResponse{}, s.cfg.Pods.StopPod(ctx, id)
}
