package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"

	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/report"
)

// gvisor starts and ends pods in sandboxes of gVisor, and returns its version,
// empty where there is none. The daemons are others than those of the remaining
// parts, which know nothing of runsc: to try it takes processor time when a
// daemon starts.
func (b *bench) gvisor(ctx context.Context) (version string, err error) {
	info, err := buildinfo.ReadFile(b.runsc)
	if err != nil {
		b.say("LEFT OUT: gVisor, which \"make bench\" builds: %v", err)
		return "", nil
	}
	cfg := b.cfg
	cfg.Programs = maps.Clone(cfg.Programs)
	cfg.Programs["runsc"] = b.runsc
	s, err := startAll(ctx, cfg, b.kinds...)
	if err != nil {
		return "", err
	}
	defer func() {
		if e := s.stop(); err == nil {
			err = e
		}
	}()
	var all []variant
	for _, k := range b.kinds {
		all = append(all, variant{k, "runsc"})
	}
	for _, v := range all { // caches are warm, links and chains are there
		if err := s.target(v, nil).Twins(ctx, 1); err != nil {
			return "", fmt.Errorf("%w\n%s", err, s.systems[v.kind].Said())
		}
	}
	return info.Main.Version, b.rounds(ctx, s, all, phase{report.GVisor, func(ctx context.Context, t load.Target) error {
		return t.Twins(ctx, b.plan.sandboxes)
	}}, b.plan.serialRounds)
}
