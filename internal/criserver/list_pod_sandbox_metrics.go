package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// ListPodSandboxMetrics says what all pods that were not stopped, and their
// running containers, use, for monitoring. What ends meanwhile is left out.
func (s *Server) ListPodSandboxMetrics(ctx context.Context, _ *cri.ListPodSandboxMetricsRequest) (*cri.ListPodSandboxMetricsResponse, error) {
	wanted := subjects(s.cfg.Pods.Pods(), func(*pod.Record) bool { return true })
	measured := s.cfg.Stats.MetricsOf(ctx, wanted)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	resp := &cri.ListPodSandboxMetricsResponse{}
	var of *cri.PodSandboxMetrics // nil if the pod cannot be measured
	for i := range measured {
		subject, m := wanted[i], &measured[i]
		if subject.Container == nil {
			of = nil
		}
		switch {
		case m.Err != nil:
			s.leaveOut(m.Err)
		case subject.Container == nil:
			of = &cri.PodSandboxMetrics{PodSandboxId: string(subject.Pod.ID), Metrics: encodeMetrics(subject, m)}
			resp.PodMetrics = append(resp.PodMetrics, of)
		case of != nil:
			of.ContainerMetrics = append(of.ContainerMetrics, &cri.ContainerMetrics{
				ContainerId: string(subject.Container.ID), Metrics: encodeMetrics(subject, m),
			})
		}
	}
	return resp, nil
}

// podMetricsName is what cAdvisor calls the container whose metrics are the pod's.
const podMetricsName = "POD"

// encodeMetrics says the time of what was measured before it was asked for only.
func encodeMetrics(of pod.Subject, m *pod.Metrics) []*cri.Metric {
	whose := []string{m.Cgroup, string(of.Pod.ID), "", podMetricsName, of.Pod.Config.Metadata.Name, of.Pod.Config.Metadata.Namespace}
	if c := of.Container; c != nil {
		whose[1], whose[2], whose[3] = string(c.ID), encodeUsedImage(c).Image, c.Config.Metadata.Name
	}
	whose = whose[:len(whose):len(whose)] // so that an append makes a copy
	// There may be tens of thousands of them.
	metrics, values := make([]cri.Metric, len(m.Values)), make([]cri.UInt64Value, len(m.Values))
	out := make([]*cri.Metric, len(m.Values))
	for i, v := range m.Values {
		values[i].Value = v.Value
		one := &metrics[i]
		one.Name, one.Timestamp, one.Value, one.LabelValues = v.Family.Name, nanoseconds(m.At), &values[i], append(whose, v.Labels...)
		if !v.Family.Counter {
			one.MetricType = cri.MetricType_GAUGE
		}
		out[i] = one
	}
	return out
}
