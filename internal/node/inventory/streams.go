package inventory

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// Command is what is run in a container.
type Command struct {
	Args  []string
	Stdin bool
	TTY   bool // without one standard error is a stream of its own
}

// ExecURL asks for a stream that runs a command in a container.
func ExecURL(ctx context.Context, client runtimeapi.RuntimeServiceClient, c *Container, command Command) (string, error) {
	resp, err := client.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: c.ID, Cmd: command.Args, Tty: command.TTY, Stdin: command.Stdin, Stdout: true, Stderr: !command.TTY,
	})
	if err != nil {
		return "", fmt.Errorf("exec in container %s: %w", c.Name, err)
	}
	return resp.GetUrl(), nil
}

// LogPath is where a container's log is.
func LogPath(ctx context.Context, client runtimeapi.RuntimeServiceClient, c *Container) (string, error) {
	resp, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err != nil {
		return "", fmt.Errorf("find the log of container %s: %w", c.Name, err)
	}
	path := resp.GetStatus().GetLogPath()
	if path == "" {
		return "", fmt.Errorf("container %s keeps no log: %w", c.Name, errdefs.ErrNotFound)
	}
	return path, nil
}

// askInterval is how often AwaitExit asks.
const askInterval = time.Second

// AwaitExit returns when a container has ended or is gone, or the context ends.
func AwaitExit(ctx context.Context, client runtimeapi.RuntimeServiceClient, c *Container) {
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	for {
		resp, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		if err != nil || resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
