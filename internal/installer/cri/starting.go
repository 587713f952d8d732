package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// fresh is how long ago something was made that is on its way: a container that was not
	// started by then waits for something else than the runtime.
	fresh = time.Minute
	// often is how often it is asked what is on its way.
	often = 200 * time.Millisecond
)

// starting is how many pods have no container yet, and how many containers were made and
// not started, of those that are new.
func (c Client) starting(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n, since := 0, time.Now().Add(-fresh).UnixNano()
	err := c.ask(func(r runtimeapi.RuntimeServiceClient) error {
		pods, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		containers, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return err
		}
		filled := map[string]bool{}
		for _, c := range containers.GetContainers() {
			filled[c.GetPodSandboxId()] = true
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED && c.GetCreatedAt() > since {
				n++
			}
		}
		for _, s := range pods.GetItems() {
			if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && !filled[s.GetId()] && s.GetCreatedAt() > since {
				n++
			}
		}
		return nil
	})
	return n, err
}

// Quiet waits until no pod and no container is on its way, as long as the context allows:
// what is being made while the runtime is restarted has to be made again. It says how many
// there are still. One that does not answer makes nothing.
func (c Client) Quiet(ctx context.Context) int {
	left := 0
	for {
		n, err := c.starting(ctx)
		switch {
		case ctx.Err() != nil:
			return left
		case err != nil || n == 0:
			return 0
		}
		left = n
		select {
		case <-ctx.Done():
			return left
		case <-time.After(often):
		}
	}
}
