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
			of = attach(&cri.PodSandboxMetrics{PodSandboxId: string(subject.Pod.ID)}, encodeMetrics(subject, m))
			resp.PodMetrics = append(resp.PodMetrics, of)
		case of != nil:
			of.ContainerMetrics = append(of.ContainerMetrics,
				attach(&cri.ContainerMetrics{ContainerId: string(subject.Container.ID)}, encodeMetrics(subject, m)))
		}
	}
	return resp, nil
}

// podMetricsName is what cAdvisor calls the container whose metrics are the pod's.
const podMetricsName = "POD"

// usualMetric is for how many bytes of each metric there is room at first, beside
// what says whose it is.
const usualMetric = 96

// encodeMetrics writes the field metrics, which is the same of a pod and of a
// container. It says the time of what was measured before it was asked for only.
func encodeMetrics(of pod.Subject, m *pod.Metrics) wire {
	labels := []string{m.Cgroup, string(of.Pod.ID), "", podMetricsName, of.Pod.Config.Metadata.Name, of.Pod.Config.Metadata.Namespace}
	if c := of.Container; c != nil {
		labels[1], labels[2], labels[3] = string(c.ID), encodeUsedImage(c).Image, c.Config.Metadata.Name
	}
	var whose wire
	for _, l := range labels {
		whose.item(4, l)
	}
	w := make(wire, 0, len(m.Values)*(len(whose)+usualMetric))
	for i := range m.Values {
		v := &m.Values[i]
		w.message(2, func() {
			w.text(1, v.Family.Name)
			w.number(2, uint64(nanoseconds(m.At)))
			if !v.Family.Counter {
				w.number(3, uint64(cri.MetricType_GAUGE))
			}
			w = append(w, whose...)
			for _, l := range v.Labels {
				w.item(4, l)
			}
			w.value(5, &v.Value)
		})
	}
	return w
}
