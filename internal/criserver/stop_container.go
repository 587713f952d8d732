package criserver

import (
	"context"
	"math"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer asks the container to end, and ends it by force after the
// timeout. A container that is not there, or has ended, is no error.
func (s *Server) StopContainer(ctx context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	id, err := s.containerID(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &cri.StopContainerResponse{}, s.cfg.Containers.StopContainer(ctx, id, seconds(r.GetTimeout()))
}

// seconds is a timeout of the CRI: zero if it is negative, and no longer than
// what can still be added to any time.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt32)) * time.Second
}
