package criserver

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// PodSandboxStats says what one pod and each of its containers use.
func (s *Server) PodSandboxStats(_ context.Context, r *cri.PodSandboxStatsRequest) (*cri.PodSandboxStatsResponse, error) {
	p, err := s.findPod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !measurable(p.State) {
		return nil, fmt.Errorf("pod %s was stopped, so nothing of it can be measured: %w", p.ID.Short(), errdefs.ErrNotFound)
	}
	u, err := s.cfg.Stats.Pod(p)
	if err != nil {
		return nil, err
	}
	out := encodePodStats(p, &u)
	for _, c := range p.Containers {
		if !measurable(c.State) {
			continue
		}
		used, err := s.cfg.Stats.Container(p, c)
		if err != nil {
			s.leaveOut(err)
			continue
		}
		out.Linux.Containers = append(out.Linux.Containers, encodeContainerStats(c, &used))
	}
	return &cri.PodSandboxStatsResponse{Stats: out}, nil
}
