package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeName is what the runtime calls itself.
const RuntimeName = "fairlead"

const (
	kubeAPIVersion = "0.1.0" // of the kubelet's runtime API; it has never changed
	criVersion     = "v1"
)

// Version names the runtime.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{
		Version:           kubeAPIVersion,
		RuntimeName:       RuntimeName,
		RuntimeVersion:    s.cfg.Version,
		RuntimeApiVersion: criVersion,
	}, nil
}
