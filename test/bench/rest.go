package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead.run/test/bench/gauge"
	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/peer"
	"fairlead.run/test/bench/report"
)

// rest measures a daemon that nobody asks for anything, with more and more
// pods. No other daemon runs meanwhile: two that share a program's memory would
// each seem to need half of it.
func (b *bench) rest(ctx context.Context, kind peer.Kind) (err error) {
	s, err := startAll(ctx, b.cfg, kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	v := variant{kind, "runc"}
	t := s.target(v, nil)
	var pods []*load.Pod
	var few struct { // the smallest number of pods that is not none
		pods   int
		memory float64
	}
	for _, n := range b.plan.idle {
		more, err := t.UpAll(ctx, 4, n-len(pods))
		if err != nil {
			return fmt.Errorf("start %d pods: %w\n%s", n, err, t.System.Said())
		}
		pods = append(pods, more...)
		memory, cpu, err := b.watch(ctx, t.System)
		if err != nil {
			return err
		}
		scenario := report.Idle(n)
		b.results.Add(report.Key{Metric: report.Memory, Scenario: scenario, Variant: v.String()}, "MB", memory)
		b.results.Add(report.Key{Metric: report.CPU, Scenario: scenario, Variant: v.String()}, "% of a core", cpu)
		if few.pods == 0 {
			few.pods, few.memory = n, memory
		}
		// Not from none on: what a daemon needs once it has any pod is no pod's.
		if n > few.pods && n == b.plan.idle[len(b.plan.idle)-1] {
			b.results.Add(report.Key{Metric: report.PerPod, Scenario: report.Between(few.pods, n), Variant: v.String()},
				"MB", (memory-few.memory)/float64(n-few.pods))
		}
		b.say("%-14s %-34s %.1f MB, %.3f%% of a core", scenario, v, memory, cpu)
	}
	if err := b.crowd(ctx, s, v, pods); err != nil {
		return err
	}
	return t.DownAll(ctx, 4, pods)
}

// crowd looks at containers, more and more of them in the same pods.
func (b *bench) crowd(ctx context.Context, s *stage, v variant, pods []*load.Pod) error {
	second := 0 // pods with a second container
	for _, n := range b.plan.crowd {
		more := n - len(pods) - second
		if err := s.target(v, nil).GrowAll(ctx, 4, pods[second:second+more]); err != nil {
			return fmt.Errorf("start more containers: %w", err)
		}
		second += more
		times := &load.Times{}
		if err := s.target(v, times).Look(ctx, pods, n, b.plan.looks); err != nil {
			return err
		}
		b.take(v, report.Crowd(n), times)
	}
	return nil
}

// watch looks at a daemon at rest for a time.
func (b *bench) watch(ctx context.Context, s *peer.System) (memory, cpu float64, err error) {
	d := gauge.Daemon{Pid: s.Pid(), Cgroup: s.Cgroup}
	if err := sleep(ctx, b.plan.settle); err != nil {
		return 0, 0, err
	}
	before, err := d.CPU()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := sleep(ctx, b.plan.watch); err != nil {
		return 0, 0, err
	}
	after, err := d.CPU()
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begin)
	// Last, because reading it is work for the kernel, and for nobody else.
	memory, err = d.Memory()
	return memory, 100 * float64(after-before) / float64(took), err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
