package criserver

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// PortForward prepares a stream to ports of a pod. No port at all means that
// the client names them on the stream.
func (s *Server) PortForward(_ context.Context, r *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	var d decoder
	for i, p := range r.GetPort() {
		field := fmt.Sprintf("port[%d]", i)
		if d.port(field, p) == 0 {
			d.fail(field, "is %d; ports go from 1 to 65535", p)
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	p, err := s.findPod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if p.State != pod.Running && p.State != pod.Unknown {
		return nil, fmt.Errorf("pod %s (%s) is %s; ports of a running pod only can be forwarded: %w",
			p.Config.Metadata.Name, p.ID.Short(), p.State, errdefs.ErrPrecondition)
	}
	url, err := s.cfg.Streams.PortForwardURL(&cri.PortForwardRequest{PodSandboxId: string(p.ID), Port: r.GetPort()})
	if err != nil {
		return nil, err
	}
	return &cri.PortForwardResponse{Url: url}, nil
}
