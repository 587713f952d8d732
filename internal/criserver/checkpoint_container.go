package criserver

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// statusFile is what a checkpoint says of its container in the CRI's terms.
const statusFile = "status.dump"

// CheckpointContainer writes the state of a running container to an archive. The
// container goes on.
func (s *Server) CheckpointContainer(ctx context.Context, r *cri.CheckpointContainerRequest) (*cri.CheckpointContainerResponse, error) {
	p, c, err := s.findContainer(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	var d decoder
	d.required("location", d.absolute("location", r.GetLocation()))
	if t := r.GetTimeout(); t < 0 || t > math.MaxInt64/int64(time.Second) {
		d.fail("timeout", "is %d; it is a number of seconds", t)
	}
	if d.err != nil {
		return nil, d.err
	}
	q := pod.Checkpoint{Location: path.Clean(r.GetLocation()), Timeout: time.Duration(r.GetTimeout()) * time.Second}
	if q.Files, err = statusOfCheckpoint(p, c); err != nil {
		return nil, err
	}
	return &cri.CheckpointContainerResponse{}, s.cfg.Pods.CheckpointContainer(ctx, c.ID, q)
}

func statusOfCheckpoint(p *pod.Record, c *pod.Container) (map[string][]byte, error) {
	status, err := json.Marshal(encodeContainerStatus(p, c))
	if err != nil {
		return nil, fmt.Errorf("encode the status of container %s: %w: %w", c.ID.Short(), errdefs.ErrInternal, err)
	}
	return map[string][]byte{statusFile: status}, nil
}
