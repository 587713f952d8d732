package criserver

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// ContainerStats says what one container uses.
func (s *Server) ContainerStats(_ context.Context, r *cri.ContainerStatsRequest) (*cri.ContainerStatsResponse, error) {
	p, c, err := s.findContainer(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !measurable(c.State) {
		return nil, fmt.Errorf("container %s does not run, so nothing of it can be measured: %w", c.ID.Short(), errdefs.ErrNotFound)
	}
	u, err := s.cfg.Stats.Container(p, c)
	if err != nil {
		return nil, err
	}
	return &cri.ContainerStatsResponse{Stats: encodeContainerStats(c, &u)}, nil
}

// measurable says whether there may be something to measure.
func measurable(s pod.State) bool { return s == pod.Running || s == pod.Unknown }
