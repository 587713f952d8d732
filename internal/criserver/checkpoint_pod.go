package criserver

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// The files of a pod's checkpoint, as Podman names them.
const (
	podFile        = "pod.dump"
	podOptionsFile = "pod.options"
)

// CheckpointPod writes the state that containers of a pod have at one moment into
// a folder. All of them go on.
func (s *Server) CheckpointPod(ctx context.Context, r *cri.CheckpointPodRequest) (*cri.CheckpointPodResponse, error) {
	p, err := s.findPod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	var d decoder
	d.required("output_path", d.absolute("output_path", r.GetOutputPath()))
	d.noOptions(r.GetOptions())
	if len(r.GetContainerIds()) == 0 {
		d.fail("container_ids", "is empty")
	}
	if d.err != nil {
		return nil, d.err
	}
	q := pod.PodCheckpoint{Location: path.Clean(r.GetOutputPath()), ContainerFiles: map[pod.ContainerID]map[string][]byte{}}
	var names []string
	for _, id := range r.GetContainerIds() {
		q.Containers = append(q.Containers, pod.ContainerID(id))
		c := p.Container(pod.ContainerID(id))
		if c == nil {
			continue // the core says so
		}
		names = append(names, c.Config.Metadata.Name)
		if q.ContainerFiles[c.ID], err = statusOfCheckpoint(p, c); err != nil {
			return nil, err
		}
	}
	if q.Files, err = filesOfPod(p, names); err != nil {
		return nil, err
	}
	return &cri.CheckpointPodResponse{}, s.cfg.Pods.CheckpointPod(ctx, p.ID, q)
}

// noOptions refuses options of checkpoints, of which no handler has any.
func (d *decoder) noOptions(options map[string]string) {
	for name := range options {
		d.fail("options", "has %q, and no handler of Fairlead has options", name)
	}
}

// filesOfPod say what a checkpoint is of.
func filesOfPod(p *pod.Record, names []string) (map[string][]byte, error) {
	m := p.Config.Metadata
	out := map[string][]byte{}
	for name, content := range map[string]any{
		podFile: map[string]any{
			"metadata": map[string]any{"name": m.Name, "uid": m.UID, "namespace": m.Namespace, "attempt": m.Attempt},
			"hostname": p.Config.Hostname,
		},
		podOptionsFile: map[string]any{"version": 1, "containers": names, "mountLabel": p.Labels.Mount, "processLabel": p.Labels.Process},
	} {
		data, err := json.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("describe pod %s: %w: %w", p.ID.Short(), errdefs.ErrInternal, err)
		}
		out[name] = data
	}
	return out, nil
}
