package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/bench/peer"
	"fairlead.run/test/bench/report"
)

// restart kills Fairlead among its pods and starts it again, some times.
func (b *bench) restart(ctx context.Context) (err error) {
	v := variant{peer.FairleadBuiltin, "crun"}
	s, err := startAll(ctx, b.cfg, v.kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	t := s.target(v, nil)
	pods, err := t.UpAll(ctx, 4, b.plan.restartPods)
	if err != nil {
		return fmt.Errorf("start pods for the restarts: %w\n%s", err, t.System.Said())
	}
	scenario := report.Restart(len(pods))
	for n := range b.plan.restarts {
		took, err := t.System.Restart(ctx)
		if err == nil {
			err = running(ctx, t.System, len(pods))
		}
		if err != nil {
			return fmt.Errorf("restart %d: %w\n%s", n+1, err, t.System.Said())
		}
		answer, observed := ms(took.Answer), ms(took.Observed)
		b.results.Add(report.Key{Metric: report.Answer, Scenario: scenario, Variant: v.String()}, "ms", answer)
		b.results.Add(report.Key{Metric: report.Observed, Scenario: scenario, Variant: v.String()}, "ms", observed)
		b.say("%-14s %d/%d  %-34s answer %.1f ms, observed %.1f ms", "restart", n+1, b.plan.restarts, v, answer, observed)
	}
	return t.DownAll(ctx, 4, pods)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// running fails unless that many containers run: a daemon that had lost them
// would have been quick to observe them.
func running(ctx context.Context, s *peer.System, want int) error {
	r, err := s.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return err
	}
	if got := len(r.GetContainers()); got != want {
		return fmt.Errorf("%d containers run after it, and %d did before", got, want)
	}
	return nil
}
