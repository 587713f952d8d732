package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateContainerResources changes the limits of a container, running or not.
func (s *Server) UpdateContainerResources(ctx context.Context, r *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	var d decoder
	if r.GetWindows() != nil {
		d.fail("windows", "is set, but this node runs Linux")
	}
	if len(r.GetAnnotations()) > 0 {
		d.fail("annotations", "is set, and no annotation changes what a container is limited to")
	}
	res := d.resources("linux", r.GetLinux())
	if res == nil {
		d.fail("linux", "is required")
	}
	if d.err != nil {
		return nil, d.err
	}
	id, err := s.containerID(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &cri.UpdateContainerResourcesResponse{}, s.cfg.Containers.UpdateContainer(ctx, id, res)
}
