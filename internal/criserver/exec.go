package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exec prepares a stream to a new process in a container.
func (s *Server) Exec(_ context.Context, r *cri.ExecRequest) (*cri.ExecResponse, error) {
	var d decoder
	if d.streams(r); d.err != nil {
		return nil, d.err
	}
	c, err := s.execTarget(r.GetContainerId(), r.GetCmd())
	if err != nil {
		return nil, err
	}
	url, err := s.cfg.Streams.ExecURL(&cri.ExecRequest{
		ContainerId: string(c.ID), Cmd: r.GetCmd(), Tty: r.GetTty(),
		Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	if err != nil {
		return nil, err
	}
	return &cri.ExecResponse{Url: url}, nil
}

// streams checks which streams a client asks for.
func (d *decoder) streams(r interface {
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
},
) {
	if !r.GetStdin() && !r.GetStdout() && !r.GetStderr() {
		d.fail("stdin, stdout and stderr", "are all false; one must be true")
	}
	if r.GetTty() && r.GetStderr() {
		d.fail("stderr", "is true beside tty; a terminal has one output, stdout")
	}
}
