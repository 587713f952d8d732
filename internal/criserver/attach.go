package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Attach prepares a stream to a running container.
func (s *Server) Attach(_ context.Context, r *cri.AttachRequest) (*cri.AttachResponse, error) {
	var d decoder
	if d.streams(r); d.err != nil {
		return nil, d.err
	}
	_, c, err := s.findContainer(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := running(c); err != nil {
		return nil, err
	}
	if tty := c.Config.Process.TTY; tty != r.GetTty() {
		d.fail("tty", "is %t, but the container was created with tty: %t", r.GetTty(), tty)
		return nil, d.err
	}
	url, err := s.cfg.Streams.AttachURL(&cri.AttachRequest{
		ContainerId: string(c.ID), Tty: r.GetTty(),
		// A container without an input has none to attach to. Clients ask for
		// it regardless, and peers ignore it.
		Stdin:  r.GetStdin() && c.Config.Process.Stdin,
		Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	if err != nil {
		return nil, err
	}
	return &cri.AttachResponse{Url: url}, nil
}
