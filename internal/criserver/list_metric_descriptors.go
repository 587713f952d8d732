package criserver

import (
	"context"
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metricLabels say whose a metric is, as cAdvisor names them in a kubelet. Those
// of the family follow.
var metricLabels = []string{"id", "name", "image", "container", "pod", "namespace"}

// ListMetricDescriptors describes what ListPodSandboxMetrics may answer.
func (s *Server) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	resp := &cri.ListMetricDescriptorsResponse{}
	for _, f := range s.cfg.Stats.Families() {
		resp.Descriptors = append(resp.Descriptors, &cri.MetricDescriptor{
			Name: f.Name, Help: f.Help, LabelKeys: slices.Concat(metricLabels, f.Labels),
		})
	}
	return resp, nil
}
