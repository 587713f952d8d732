package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// ListPodSandboxStats says what the pods use that the filter selects and that
// were not stopped.
func (s *Server) ListPodSandboxStats(ctx context.Context, r *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	f := r.GetFilter()
	wanted := subjects(s.podsByID(f.GetId()), func(p *pod.Record) bool { return hasLabels(p.Config.Labels, f.GetLabelSelector()) })
	measured := s.cfg.Stats.UsageOf(ctx, wanted)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	resp := &cri.ListPodSandboxStatsResponse{}
	var of *cri.PodSandboxStats // nil if the pod cannot be measured
	for i := range measured {
		subject, m := wanted[i], &measured[i]
		if subject.Container == nil {
			of = nil
		}
		switch {
		case m.Err != nil:
			s.leaveOut(m.Err)
		case subject.Container == nil:
			of = encodePodStats(subject.Pod, &m.Pod)
			resp.Stats = append(resp.Stats, of)
		case of != nil:
			of.Linux.Containers = append(of.Linux.Containers, encodeContainerStats(subject.Container, &m.Container))
		}
	}
	return resp, nil
}

// subjects are the wanted pods that were not stopped, each before its containers
// that run.
func subjects(pods []*pod.Record, wanted func(*pod.Record) bool) []pod.Subject {
	var out []pod.Subject
	for _, p := range pods {
		if !measurable(p.State) || !wanted(p) {
			continue
		}
		out = append(out, pod.Subject{Pod: p})
		for _, c := range p.Containers {
			if measurable(c.State) {
				out = append(out, pod.Subject{Pod: p, Container: c})
			}
		}
	}
	return out
}
