package streaming

import (
	"context"
	"fmt"
	"sync"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// How much output ExecSync keeps: as much as fits into a CRI message with both
// outputs in it. Each of the two is left at least reserved bytes of that.
const (
	maxCaptured = 16<<20 - 64<<10
	reserved    = 1 << 20
)

// ExecSync runs a command in a container and returns what it printed. When ctx
// ends, the command is killed with everything it started. Output beyond 16 MiB
// is dropped, and the end of stderr says so.
func (s *Server) ExecSync(ctx context.Context, id pod.ContainerID, command []string) (*cri.ExecSyncResponse, error) {
	c := &capture{left: maxCaptured}
	stdout, stderr := &captured{of: c}, &captured{of: c}
	exit, err := s.run(ctx, id, process{command: command, stdout: stdout, stderr: stderr})
	if err != nil {
		return nil, fmt.Errorf("exec in container %s: %w", id.Short(), err)
	}
	if exit.Lost {
		return nil, fmt.Errorf("exec in container %s: the process has ended, but nobody saw its exit code: %w", id.Short(), errdefs.ErrInternal)
	}
	if stdout.dropped+stderr.dropped > 0 {
		stderr.data = fmt.Appendf(stderr.data, "\nfairlead: the output was too long; %d bytes of stdout and %d of stderr were dropped\n", stdout.dropped, stderr.dropped)
	}
	return &cri.ExecSyncResponse{Stdout: stdout.data, Stderr: stderr.data, ExitCode: exit.Code}, nil
}

// capture is the room that two outputs share.
type capture struct {
	mu   sync.Mutex
	left int
}

// captured is one of them. It takes everything and keeps what there is room for.
type captured struct {
	of      *capture
	data    []byte
	dropped int64
}

// Write implements io.Writer.
func (c *captured) Write(p []byte) (int, error) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	keep := max(0, min(len(p), c.of.left, maxCaptured-reserved-len(c.data)))
	c.of.left -= keep
	c.data = append(c.data, p[:keep]...)
	c.dropped += int64(len(p) - keep)
	return len(p), nil
}
