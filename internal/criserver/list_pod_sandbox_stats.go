package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandboxStats says what the pods use that the filter selects and that
// were not stopped.
func (s *Server) ListPodSandboxStats(ctx context.Context, r *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	resp := &cri.ListPodSandboxStatsResponse{}
	f := r.GetFilter()
	for _, p := range s.podsByID(f.GetId()) {
		if !measurable(p.State) || !hasLabels(p.Config.Labels, f.GetLabelSelector()) {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		one, err := s.measurePod(ctx, p)
		if err != nil {
			s.leaveOut(err)
			continue
		}
		resp.Stats = append(resp.Stats, one)
	}
	return resp, nil
}
