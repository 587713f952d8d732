package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// ListContainers lists the containers that the filter selects.
func (s *Server) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	resp := &cri.ListContainersResponse{}
	f := r.GetFilter()
	only := pod.ContainerID("")
	if f.GetId() != "" {
		_, c, err := s.cfg.Containers.FindContainer(f.GetId())
		if err != nil {
			return resp, nil // no container has that id: nothing is selected
		}
		only = c.ID
	}
	for _, p := range s.podsByID(f.GetPodSandboxId()) {
		for _, c := range p.Containers {
			if (only == "" || only == c.ID) && selects(f, c) {
				resp.Containers = append(resp.Containers, encodeContainer(p, c))
			}
		}
	}
	return resp, nil
}

// selects says whether the container is what the filter wants, ids aside.
func selects(f *cri.ContainerFilter, c *pod.Container) bool {
	if c.State == pod.Creating || !hasLabels(c.Config.Labels, f.GetLabelSelector()) {
		return false
	}
	want := f.GetState()
	return want == nil || want.GetState() == encodeContainerState(c.State)
}

func encodeContainer(p *pod.Record, c *pod.Container) *cri.Container {
	return attach(&cri.Container{
		Id:           string(c.ID),
		PodSandboxId: string(p.ID),
		Metadata:     encodeContainerMetadata(c.Config.Metadata),
		Image:        encodeUsedImage(c),
		ImageRef:     c.Image.Ref,
		State:        encodeContainerState(c.State),
		CreatedAt:    nanoseconds(c.CreatedAt),
		ImageId:      c.Image.ID,
	}, encodeLabels(8, c.Config.Labels, c.Config.Annotations))
}
