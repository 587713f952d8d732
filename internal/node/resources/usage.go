package resources

import (
	"context"
	"fmt"
	"time"

	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/errdefs"
)

// sampling is how long Usage measures rates for, and how often it measures at most. The
// collector forms no rate of the node over less than a second; a runtime that is slow may
// answer with what it has measured before, without rates.
const (
	sampling = 1100 * time.Millisecond
	samples  = 5
)

// Usage is what the node and its pods use of processors and memory, with rates of the time
// that it takes, which is about a second: rates since whoever asked before may be of
// anything.
func (k *Keeper) Usage(ctx context.Context) (*statsv1.Summary, error) {
	collector := k.usage.Load()
	if collector == nil {
		return nil, fmt.Errorf("measure what pods use: the agent is about to start; try again: %w", errdefs.ErrUnavailable)
	}
	return rated(ctx, func() (*statsv1.Summary, error) { return collector.Summary(ctx, true) })
}

// rated measures until there are rates, twice at least.
func rated(ctx context.Context, measure func() (*statsv1.Summary, error)) (*statsv1.Summary, error) {
	out, err := measure()
	for range samples - 1 {
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(sampling):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if out, err = measure(); err == nil && hasRates(out) {
			break
		}
	}
	return out, err
}

// hasRates says whether there is a rate of all whose processor time is known.
func hasRates(s *statsv1.Summary) bool {
	lacks := func(c *statsv1.CPUStats) bool { return c != nil && c.UsageNanoCores == nil }
	if lacks(s.Node.CPU) {
		return false
	}
	for _, p := range s.Pods {
		if lacks(p.CPU) {
			return false
		}
		for _, c := range p.Containers {
			if lacks(c.CPU) {
				return false
			}
		}
	}
	return true
}
