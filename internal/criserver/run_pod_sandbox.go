package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox runs a pod on the handler that the request names.
func (s *Server) RunPodSandbox(ctx context.Context, r *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	var d decoder
	cfg := d.podConfig("config", r.GetConfig())
	handler := d.text("runtime_handler", r.GetRuntimeHandler())
	if d.err != nil {
		return nil, d.err
	}
	id, err := s.cfg.Pods.RunPod(ctx, cfg, handler)
	if err != nil {
		return nil, err
	}
	return &cri.RunPodSandboxResponse{PodSandboxId: string(id)}, nil
}
