package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/report"
)

// phase is one way to load a daemon, which all variants go through in turn.
type phase struct {
	name string
	run  func(context.Context, load.Target) error
}

// rounds lets variants go through a phase again and again, so that what else
// happens on the machine happens to all of them.
func (b *bench) rounds(ctx context.Context, s *stage, all []variant, p phase, n int) error {
	for round := range n {
		for _, v := range rotated(all, round) {
			times := &load.Times{}
			if err := p.run(ctx, s.target(v, times)); err != nil {
				return fmt.Errorf("%s, round %d: %w\n%s", p.name, round+1, err, s.systems[v.kind].Said())
			}
			b.take(v, p.name, times)
			b.say("%-14s round %d/%d  %-34s %s", p.name, round+1, n, v, brief(times))
		}
	}
	return nil
}

// take puts the times of a round into the results.
func (b *bench) take(v variant, scenario string, times *load.Times) {
	all := times.All()
	for _, metric := range slices.Sorted(maps.Keys(all)) {
		b.results.Add(report.Key{Metric: metric, Scenario: scenario, Variant: v.String()}, "ms", all[metric]...)
	}
}

// brief is what to show while the benchmark runs.
func brief(times *load.Times) string {
	var out string
	all := times.All()
	for _, name := range []string{load.PodStart, load.Second, load.PodEnd, load.Exec, load.PullTime} {
		if v := all[name]; len(v) > 0 {
			out += fmt.Sprintf("%s %.1f ms  ", name, report.Quantile(v, 0.5))
		}
	}
	return out
}

// churn is everything that starts and ends pods.
func (b *bench) churn(ctx context.Context, s *stage) error {
	err := b.part("serial", func() error {
		return b.rounds(ctx, s, b.variants, phase{report.Serial, func(ctx context.Context, t load.Target) error {
			return t.Serial(ctx, b.plan.serialPods, b.plan.execs)
		}}, b.plan.serialRounds)
	})
	if err != nil {
		return err
	}
	if err := b.part("parallel", func() error { return b.parallel(ctx, s) }); err != nil {
		return err
	}
	return b.part("sustained", func() error { return b.sustained(ctx, s) })
}

func (b *bench) parallel(ctx context.Context, s *stage) error {
	for _, clients := range slices.Sorted(maps.Keys(b.plan.parallel)) {
		err := b.rounds(ctx, s, b.variants, phase{report.Parallel(clients), func(ctx context.Context, t load.Target) error {
			return t.Parallel(ctx, clients, b.plan.parallel[clients])
		}}, b.plan.parallelRounds)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) sustained(ctx context.Context, s *stage) error {
	const clients = 16
	return b.rounds(ctx, s, b.variants, phase{report.Sustained, func(ctx context.Context, t load.Target) error {
		v := variant{t.System.Kind, t.Handler}
		t.Times = nil // the calls are those of the other parts; only their number counts here
		rate, err := t.Sustain(ctx, clients, b.plan.sustain)
		if err != nil {
			return err
		}
		b.results.Add(report.Key{Metric: report.Rate, Scenario: report.Sustained, Variant: v.String()}, "pods/s", rate)
		b.say("%-14s %-34s %.1f pods/s", report.Sustained, v, rate)
		return nil
	}}, b.plan.sustainRounds)
}

// pulls takes the time of pulls. The handler does not matter, nor does the network.
//
// Each round has images of its own, and all are removed at the end: ext4 passes
// over the inodes that were freed in the last minute, one by one, so that a pull
// shortly after a removal takes up to twice as long, whoever does it.
func (b *bench) pulls(ctx context.Context, s *stage, all []variant) error {
	for round := range b.plan.pullRounds {
		for _, p := range b.plan.pulls {
			if err := b.registry.serve(p, round); err != nil {
				return err
			}
			for _, v := range rotated(all, round) {
				if err := b.pull(ctx, s, v, p, round); err != nil {
					return fmt.Errorf("%s, round %d: %w\n%s", p.name(), round+1, err, s.systems[v.kind].Said())
				}
			}
		}
	}
	for _, v := range all {
		for round := range b.plan.pullRounds {
			for _, p := range b.plan.pulls {
				if err := s.target(v, nil).RemoveImage(ctx, p.image(round)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bench) pull(ctx context.Context, s *stage, v variant, p pulled, round int) error {
	times := &load.Times{}
	t := s.target(v, times)
	unix.Sync() // what was written before does not count
	if err := t.Pull(ctx, load.PullTime, p.image(round)); err != nil {
		return err
	}
	if got, want := b.registry.taken(p.repo()), p.layers+1; got != want {
		return fmt.Errorf("%s: it fetched %d blobs and the image has %d: some were there before", t.System.Kind, got, want)
	}
	b.take(v, p.name(), times)
	b.say("%-14s round %d/%d  %-34s %s", p.name(), round+1, b.plan.pullRounds, v, brief(times))
	return nil
}
