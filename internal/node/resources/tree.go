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
)

// How long the cgroups may take to go at the end, and how soon a share of the
// processors that could not be given is tried again.
const (
	closeTimeout = 5 * time.Second
	shareRetry   = time.Minute
)

// tree is the cgroups of pods. Whenever one comes, goes or changes, the share that those
// of its class have together is worked out anew.
type tree struct {
	*cgroups.Manager
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
	return &tree{m, cfg.Log, make(chan struct{}, 1)}, nil
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

// run shares the processors out until ctx ends.
func (t *tree) run(ctx context.Context, pods lister, tell Tell) {
	told := ""
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
		case <-timer.C:
		}
		if err := t.Share(ctx, running(pods)); err != nil && ctx.Err() == nil {
			t.log.Warn("the pods of a class do not have the processor time that they asked for", "error", err, "again", shareRetry.String())
			timer.Reset(shareRetry)
			if text := err.Error(); text != told {
				tell.Node(corev1.EventTypeWarning, "FailedShareOfProcessors", "Burstable pods do not have the processor time that they asked for, and it is tried again: "+text)
				told = text
			}
		}
	}
}
