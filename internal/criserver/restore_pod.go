package criserver

import (
	"context"
	"fmt"
	"path"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// RestorePod makes a pod with created containers that go on from a checkpoint of
// CheckpointPod once they are started.
func (s *Server) RestorePod(ctx context.Context, r *cri.RestorePodRequest) (*cri.RestorePodResponse, error) {
	var d decoder
	d.required("checkpoint_path", d.absolute("checkpoint_path", r.GetCheckpointPath()))
	d.noOptions(r.GetOptions())
	if len(r.GetContainerConfigs()) == 0 {
		d.fail("container_configs", "is empty")
	}
	q := pod.Restore{
		From: path.Clean(r.GetCheckpointPath()), Config: d.podConfig("config", r.GetConfig()),
		Handler: d.text("runtime_handler", r.GetRuntimeHandler()),
	}
	for i, c := range r.GetContainerConfigs() {
		q.Containers = append(q.Containers, d.containerConfig(fmt.Sprintf("container_configs[%d]", i), c))
	}
	if d.err != nil {
		return nil, d.err
	}
	id, restored, err := s.cfg.Pods.RestorePod(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &cri.RestorePodResponse{PodSandboxId: string(id)}
	for _, c := range restored {
		out.RestoredContainers = append(out.RestoredContainers, &cri.RestoredContainer{Name: c.Name, ContainerId: string(c.ID)})
	}
	return out, nil
}
