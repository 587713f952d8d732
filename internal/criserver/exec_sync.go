package criserver

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// ExecSync runs a command in a container and returns what it printed. When the
// timeout is over the command ends, with everything it started; 0 is none.
func (s *Server) ExecSync(ctx context.Context, r *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	c, err := s.execTarget(r.GetContainerId(), r.GetCmd())
	if err != nil {
		return nil, err
	}
	if t := seconds(r.GetTimeout()); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t, fmt.Errorf("the command ran longer than %s and was killed: %w", t, errdefs.ErrDeadline))
		defer cancel()
	}
	return s.cfg.Streams.ExecSync(ctx, c.ID, r.GetCmd())
}

// execTarget is the container in which the command can run.
func (s *Server) execTarget(id string, command []string) (*pod.Container, error) {
	var d decoder
	if len(command) == 0 || command[0] == "" {
		d.fail("cmd", "is required")
	}
	d.texts("cmd", command)
	if d.err != nil {
		return nil, d.err
	}
	_, c, err := s.findContainer(id)
	if err != nil {
		return nil, err
	}
	return c, running(c)
}

func running(c *pod.Container) error {
	if c.State == pod.Running || c.State == pod.Unknown { // unknown: the attempt will tell
		return nil
	}
	return fmt.Errorf("container %s (%s) is %s, not running: %w", c.Config.Metadata.Name, c.ID.Short(), c.State, errdefs.ErrPrecondition)
}
