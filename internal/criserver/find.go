package criserver

import (
	"errors"
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// The field names of ids in the CRI.
const (
	podIDField       = "pod_sandbox_id"
	containerIDField = "container_id"
)

// findPod is the pod that a caller may see. One that is still being made is
// not there yet.
func (s *Server) findPod(id string) (*pod.Record, error) {
	var d decoder
	if d.required(podIDField, id); d.err != nil {
		return nil, d.err
	}
	r, err := s.cfg.Pods.FindPod(id)
	if err == nil && r.State == pod.Creating {
		return nil, fmt.Errorf("pod %s is still being made: %w", id, errdefs.ErrNotFound)
	}
	return r, err
}

// findContainer is as findPod.
func (s *Server) findContainer(id string) (*pod.Record, *pod.Container, error) {
	var d decoder
	if d.required(containerIDField, id); d.err != nil {
		return nil, nil, d.err
	}
	r, c, err := s.cfg.Containers.FindContainer(id)
	if err == nil && c.State == pod.Creating {
		return nil, nil, fmt.Errorf("container %s is still being made: %w", id, errdefs.ErrNotFound)
	}
	return r, c, err
}

// podID completes an id for a call that does not mind unknown ones: those pass
// as they are, and the core says whether it minds.
func (s *Server) podID(id string) (pod.ID, error) {
	var d decoder
	if d.required(podIDField, id); d.err != nil {
		return "", d.err
	}
	r, err := s.cfg.Pods.FindPod(id)
	switch {
	case err == nil:
		return r.ID, nil
	case errors.Is(err, errdefs.ErrNotFound):
		return pod.ID(id), nil
	}
	return "", err
}

// containerID is as podID.
func (s *Server) containerID(id string) (pod.ContainerID, error) {
	var d decoder
	if d.required(containerIDField, id); d.err != nil {
		return "", d.err
	}
	_, c, err := s.cfg.Containers.FindContainer(id)
	switch {
	case err == nil:
		return c.ID, nil
	case errors.Is(err, errdefs.ErrNotFound):
		return pod.ContainerID(id), nil
	}
	return "", err
}
