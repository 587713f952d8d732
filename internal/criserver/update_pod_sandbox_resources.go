package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdatePodSandboxResources records what a pod may use now, and limits its
// cgroup where that is ours: a kubelet has limited its own before.
func (s *Server) UpdatePodSandboxResources(ctx context.Context, r *cri.UpdatePodSandboxResourcesRequest) (*cri.UpdatePodSandboxResourcesResponse, error) {
	var d decoder
	containers, overhead := d.resources("resources", r.GetResources()), d.resources("overhead", r.GetOverhead())
	if d.err != nil {
		return nil, d.err
	}
	p, err := s.findPod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &cri.UpdatePodSandboxResourcesResponse{}, s.cfg.Pods.ResizePod(ctx, p.ID, containers, overhead)
}
