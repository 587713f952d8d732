package resources

import (
	"context"
	"fmt"
	"time"

	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/errdefs"
)

// sampling is how long Usage measures rates for. The collector forms none of the node
// over less than a second.
const sampling = 1100 * time.Millisecond

// Usage is what the node and its pods use of processors and memory, with rates of the time
// that it takes, which is about a second: rates since whoever asked before may be of
// anything.
func (k *Keeper) Usage(ctx context.Context) (*statsv1.Summary, error) {
	collector := k.usage.Load()
	if collector == nil {
		return nil, fmt.Errorf("measure what pods use: the agent is about to start; try again: %w", errdefs.ErrUnavailable)
	}
	if _, err := collector.Summary(ctx, true); err != nil {
		return nil, err
	}
	select {
	case <-time.After(sampling):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return collector.Summary(ctx, true)
}
