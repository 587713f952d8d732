package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// ListPodSandbox lists the pods that the filter selects.
func (s *Server) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	resp := &cri.ListPodSandboxResponse{}
	f := r.GetFilter()
	for _, p := range s.podsByID(f.GetId()) {
		if p.State == pod.Creating || !hasLabels(p.Config.Labels, f.GetLabelSelector()) {
			continue
		}
		if want := f.GetState(); want != nil && want.GetState() != encodePodState(p.State) {
			continue
		}
		resp.Items = append(resp.Items, encodePod(p))
	}
	return resp, nil
}

func encodePod(p *pod.Record) *cri.PodSandbox {
	return attach(&cri.PodSandbox{
		Id:             string(p.ID),
		Metadata:       encodePodMetadata(p.Config.Metadata),
		State:          encodePodState(p.State),
		CreatedAt:      nanoseconds(p.CreatedAt),
		RuntimeHandler: p.Requested,
	}, encodeLabels(5, p.Config.Labels, p.Config.Annotations))
}
