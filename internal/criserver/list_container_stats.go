package criserver

import (
	"context"
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// ListContainerStats says what the running containers use that the filter
// selects. One that ends meanwhile is left out.
func (s *Server) ListContainerStats(ctx context.Context, r *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	resp := &cri.ListContainerStatsResponse{}
	f := r.GetFilter()
	pods, only := s.podsByID(f.GetPodSandboxId()), pod.ContainerID("")
	if f.GetId() != "" {
		p, c, err := s.cfg.Containers.FindContainer(f.GetId())
		if err != nil || !holds(pods, p.ID) {
			return resp, nil // no container has both ids: nothing is selected
		}
		pods, only = []*pod.Record{p}, c.ID
	}
	var wanted []pod.Subject
	for _, p := range pods {
		for _, c := range p.Containers {
			if measurable(c.State) && (only == "" || only == c.ID) && hasLabels(c.Config.Labels, f.GetLabelSelector()) {
				wanted = append(wanted, pod.Subject{Pod: p, Container: c})
			}
		}
	}
	measured := s.cfg.Stats.UsageOf(ctx, wanted)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i := range measured {
		if m := &measured[i]; m.Err != nil {
			s.leaveOut(m.Err)
		} else {
			resp.Stats = append(resp.Stats, encodeContainerStats(wanted[i].Container, &m.Container))
		}
	}
	return resp, nil
}

func holds(pods []*pod.Record, id pod.ID) bool {
	for _, p := range pods {
		if p.ID == id {
			return true
		}
	}
	return false
}

// leaveOut keeps what cannot be measured from hiding everything else. Most of
// it has ended meanwhile; who asks for it alone gets the error.
func (s *Server) leaveOut(err error) {
	if !errors.Is(err, errdefs.ErrNotFound) {
		s.log.Debug("left out of a list", "error", err)
	}
}
