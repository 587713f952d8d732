package inventory

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// PortForwardURL asks for a stream that reaches a port of a pod. It is good for one
// connection to the runtime.
func PortForwardURL(ctx context.Context, client runtimeapi.RuntimeServiceClient, p *Pod, port uint16) (string, error) {
	resp, err := client.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: p.ID, Port: []int32{int32(port)}})
	if err != nil {
		return "", fmt.Errorf("reach port %d of pod %s: %w", port, p.ShortName(), err)
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

// Up is an error if the sandbox of a pod has ended or is gone, which says which of the two.
// What cannot be told is none.
func Up(ctx context.Context, client runtimeapi.RuntimeServiceClient, p *Pod) error {
	resp, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
	if status.Code(err) == codes.NotFound {
		return fmt.Errorf("pod %s was removed: %w", p.ShortName(), errdefs.ErrNotFound)
	}
	now := Pod{}
	now.add(resp)
	if err == nil && resp.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY && now.State != unknown {
		return fmt.Errorf("pod %s has ended: %w", p.ShortName(), errdefs.ErrPrecondition)
	}
	return nil
}

// AwaitEnd returns when Up is an error, with that, or when the context ends.
func AwaitEnd(ctx context.Context, client runtimeapi.RuntimeServiceClient, p *Pod) error {
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	for {
		if err := Up(ctx, client, p); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

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
