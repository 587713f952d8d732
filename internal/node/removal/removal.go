package removal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/hook"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
)

// Pod is one that is to be taken down.
type Pod struct {
	ID string // of the sandbox
	// By is when its containers have to have ended.
	By *Deadline
	// Note tells of what failed and held up nothing; nil if nobody listens.
	Note func(text string)
}

// GraceOf is the grace period that a sandbox was started with, in seconds, or
// Kubernetes' default.
func GraceOf(annotations map[string]string) int64 {
	if n, err := strconv.ParseInt(annotations[podspec.AnnotationGrace], 10, 64); err == nil && n >= 0 {
		return n
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// StopPod stops the containers of a pod, all at once, each with its preStop hook and
// the grace period, and then its sandbox. It leaves them to be looked at.
func StopPod(ctx context.Context, client runtimeapi.RuntimeServiceClient, p Pod) error {
	within, cut := bounded(ctx, 0)
	defer cut()
	list, err := client.ListContainers(within, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.ID}})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	errs := make([]error, len(list.GetContainers()))
	var wg sync.WaitGroup
	for i, c := range list.GetContainers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		wg.Go(func() {
			preStop(ctx, client, c, p)
			if err := StopContainer(ctx, client, c.GetId(), p.By); err != nil {
				errs[i] = fmt.Errorf("stop container %s: %w", c.GetMetadata().GetName(), err)
			}
		})
	}
	wg.Wait()
	within, cut = bounded(ctx, 0)
	defer cut()
	_, err = client.StopPodSandbox(within, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.ID})
	if err != nil && status.Code(err) != codes.NotFound {
		errs = append(errs, fmt.Errorf("stop sandbox: %w", err))
	}
	return errors.Join(errs...)
}

// preStop runs the hook that is recorded on a container.
func preStop(ctx context.Context, client runtimeapi.RuntimeServiceClient, c *runtimeapi.Container, p Pod) {
	h := podspec.PreStopOf(c.GetAnnotations())
	if h == nil || p.By.Left() == 0 || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	within, cut := p.By.Within(ctx)
	defer cut()
	defer p.By.AfterHook()
	err := hook.Run(within, &probe.Target{ID: c.GetId(), Container: &corev1.Container{}, Executor: client}, h)
	if err != nil && p.Note != nil && !errors.Is(within.Err(), context.Canceled) && !HasEnded(ctx, client, c.GetId()) {
		p.Note(fmt.Sprintf("container %s: its preStop hook failed: %v", c.GetMetadata().GetName(), err))
	}
}

// HasEnded says that a container is known not to run any more.
func HasEnded(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) bool {
	ctx, cut := bounded(ctx, 0)
	defer cut()
	resp, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

const (
	// beyond is how long a runtime may take to stop a container after its time is over,
	// before it is told to kill it.
	beyond = 10 * time.Second
	// patience is how long it may take for everything else. Who calls it tries again.
	patience = 2 * time.Minute
)

// bounded is a context for a call that the runtime may take so many seconds for, and its
// time. A runtime that hangs is to be told of, and not waited for.
func bounded(ctx context.Context, seconds int64) (context.Context, context.CancelFunc) {
	if seconds > 0 {
		return context.WithTimeout(ctx, time.Duration(seconds)*time.Second+beyond)
	}
	return context.WithTimeout(ctx, patience)
}

// StopContainer stops a container by a deadline, and sooner if that is brought
// forward. One that is gone is no error.
func StopContainer(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string, by *Deadline) error {
	for {
		seconds, moved := by.now()
		err := stopWithin(ctx, client, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds}, moved)
		switch {
		case err == nil || status.Code(err) == codes.NotFound:
			return nil
		case ctx.Err() != nil || seconds == 0:
			return err
		}
		select {
		case <-moved: // once more, with less
			continue
		default:
		}
		err = stopWithin(ctx, client, &runtimeapi.StopContainerRequest{ContainerId: id}, nil)
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return err
	}
}

// stopWithin gives up when the deadline has moved, or the runtime takes too long.
func stopWithin(ctx context.Context, client runtimeapi.RuntimeServiceClient, r *runtimeapi.StopContainerRequest, moved <-chan struct{}) error {
	ctx, cut := bounded(ctx, r.GetTimeout())
	defer cut()
	if r.GetTimeout() > 0 {
		go func() {
			select {
			case <-moved:
				cut()
			case <-ctx.Done():
			}
		}()
	}
	_, err := client.StopContainer(ctx, r)
	return err
}

// RemovePod stops a pod and removes it with its containers. One that is gone is no
// error.
func RemovePod(ctx context.Context, client runtimeapi.RuntimeServiceClient, p Pod) error {
	stopErr := StopPod(ctx, client, p)
	ctx, cut := bounded(ctx, 0)
	defer cut()
	_, err := client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.ID})
	if err == nil || status.Code(err) == codes.NotFound {
		return nil // what would not stop is gone nevertheless
	}
	return errors.Join(stopErr, fmt.Errorf("remove sandbox: %w", err))
}

// StopSandbox stops a sandbox with all that is in it. One that is gone is no error.
func StopSandbox(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) error {
	ctx, cut := bounded(ctx, 0)
	defer cut()
	_, err := client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return ignoreGone(err)
}

// RemoveSandbox stops a sandbox and removes it. One that is gone is no error.
func RemoveSandbox(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) error {
	if err := StopSandbox(ctx, client, id); err != nil {
		return err
	}
	ctx, cut := bounded(ctx, 0)
	defer cut()
	_, err := client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return ignoreGone(err)
}

// RemoveContainer removes a container. One that is gone is no error.
func RemoveContainer(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) error {
	ctx, cut := bounded(ctx, 0)
	defer cut()
	_, err := client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}
