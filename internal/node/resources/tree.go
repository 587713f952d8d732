package resources

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cgroups"
	"fairlead.run/internal/node/lasting"
)

// How long the cgroups may take to go at the end, and how soon limits that could not be
// set are tried again.
const (
	closeTimeout = 5 * time.Second
	limitRetry   = time.Minute
)

// Reasons of events of the node. The first one is a kubelet's.
const (
	failedLimit = "FailedNodeAllocatableEnforcement"
	failedShare = "FailedShareOfProcessors"
)

// tree is the cgroups of pods. Whenever one comes, goes or changes, the share that those
// of its class have together is worked out anew.
type tree struct {
	*cgroups.Manager
	all     capacity.Together // what all pods may have
	log     *slog.Logger
	changed chan struct{}
}

func newTree(ctx context.Context, cfg Config, all capacity.Together) (*tree, error) {
	c := cfg.Settings.Cgroups
	driver, err := cgroups.DriverOf(ctx, cfg.Runtime, c.Driver)
	if err != nil {
		return nil, err
	}
	m, err := cgroups.New(cgroups.Config{Driver: driver, Root: c.Root, PodPids: c.PodPids, NoCPUQuota: c.NoQuota, Log: cfg.Log})
	if err == nil {
		err = m.Start(ctx, all)
	}
	if err != nil {
		return nil, fmt.Errorf("make the cgroups of pods: %w; without them, by --cgroups-per-qos=false, nothing limits a pod as a whole", err)
	}
	return &tree{m, all, cfg.Log, make(chan struct{}, 1)}, nil
}

// Ensure implements agent.Cgroups.
func (t *tree) Ensure(ctx context.Context, pod *corev1.Pod) error {
	defer t.poke()
	return t.Manager.Ensure(ctx, pod)
}

// Remove implements agent.Cgroups.
func (t *tree) Remove(ctx context.Context, uid types.UID) error {
	defer t.poke()
	return t.Manager.Remove(ctx, uid)
}

func (t *tree) poke() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// run sets the limit of all pods, if that was not to be had yet, and shares the processors
// out, until ctx ends.
func (t *tree) run(ctx context.Context, pods lister, tell Tell) {
	told := map[string]*lasting.Failure{} // by reason
	failed := func(reason, what string, err error) bool {
		if err == nil || ctx.Err() != nil {
			delete(told, reason)
			return false
		}
		if told[reason] == nil {
			told[reason] = &lasting.Failure{}
		}
		if text := err.Error(); told[reason].Tell(text) {
			t.log.Warn("limits of cgroups cannot be set, and are tried again", "reason", reason, "error", err, "again", limitRetry.String())
			tell.Node(corev1.EventTypeWarning, reason, what+text)
		}
		return true
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
		case <-timer.C:
		}
		limit := failed(failedLimit, "Nothing limits all pods together, so that they may take what the node keeps for itself, and it is tried again: ", t.Limit(ctx, t.all))
		share := failed(failedShare, "Burstable pods do not have the processor time that they asked for, and it is tried again: ", t.Share(ctx, running(pods)))
		if limit || share {
			timer.Reset(limitRetry)
		}
	}
}
