package agent

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// affords says why a container that runs cannot have the limit of memory that it is to get:
// it uses more than that, and a kernel with cgroups v2 would end it for that.
func (w *worker) affords(ctx context.Context, name string, asks *runtimeapi.UpdateContainerResourcesRequest) error {
	limit, has := asks.GetLinux().GetMemoryLimitInBytes(), w.view.Containers[name].Now.GetResources().GetLinux().GetMemoryLimitInBytes()
	if limit <= 0 || has > 0 && has <= limit {
		return nil
	}
	got, err := w.a.cfg.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: asks.GetContainerId()})
	if err != nil {
		return fmt.Errorf("cannot decrease memory limits: ask what it uses: %w", err)
	}
	uses := got.GetStats().GetMemory().GetUsageBytes()
	switch {
	case uses == nil:
		return errors.New("cannot decrease memory limits: the runtime does not say how much memory the container uses")
	case int64(uses.GetValue()) >= limit:
		return fmt.Errorf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below current usage (%d MiB); it is tried again until the container uses less, or ask for more",
			name, limit, uses.GetValue()>>20+1)
	}
	return nil
}
