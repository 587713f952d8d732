package criserver

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// PodSandboxStats says what one pod and each of its containers use.
func (s *Server) PodSandboxStats(ctx context.Context, r *cri.PodSandboxStatsRequest) (*cri.PodSandboxStatsResponse, error) {
	p, err := s.findPod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !measurable(p.State) {
		return nil, fmt.Errorf("pod %s was stopped, so nothing of it can be measured: %w", p.ID.Short(), errdefs.ErrNotFound)
	}
	out, err := s.measurePod(ctx, p)
	if err != nil {
		return nil, err
	}
	return &cri.PodSandboxStatsResponse{Stats: out}, nil
}

func (s *Server) measurePod(ctx context.Context, p *pod.Record) (*cri.PodSandboxStats, error) {
	u, err := s.cfg.Stats.Pod(ctx, p)
	if err != nil {
		return nil, err
	}
	out := encodePodStats(p, &u)
	out.Linux.Containers, err = s.measureContainers(ctx, p, func(*pod.Container) bool { return true })
	return out, err
}
