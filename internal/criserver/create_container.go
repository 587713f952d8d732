package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer prepares a container in a pod. The pod's own configuration is
// the one it was run with; the copy in the request changes nothing.
func (s *Server) CreateContainer(ctx context.Context, r *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	var d decoder
	cfg := d.containerConfig("config", r.GetConfig())
	if d.err != nil {
		return nil, d.err
	}
	p, err := s.findPod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	id, err := s.cfg.Containers.CreateContainer(ctx, p.ID, cfg)
	if err != nil {
		return nil, err
	}
	return &cri.CreateContainerResponse{ContainerId: string(id)}, nil
}
