package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"fairlead.run/test/bench/peer"
	"fairlead.run/test/bench/report"
)

// trace starts pods on daemons that say what stages their operations go through.
func (b *bench) trace(ctx context.Context) ([]report.Stage, error) {
	cfg := b.cfg
	cfg.Stages = true
	var out []report.Stage
	for _, v := range []variant{{peer.FairleadCNI, "runc"}, {peer.FairleadBuiltin, "crun"}} {
		stages, err := traceOf(ctx, cfg, v, b.plan.traced)
		if err != nil {
			return nil, err
		}
		b.say("%-14s %-34s %d stages", "trace", v, len(stages))
		out = append(out, stages...)
	}
	return out, nil
}

func traceOf(ctx context.Context, cfg peer.Config, v variant, n int) ([]report.Stage, error) {
	s, err := startAll(ctx, cfg, v.kind)
	if err != nil {
		return nil, err
	}
	if err := s.target(v, nil).Serial(ctx, n, 0); err != nil {
		return nil, fmt.Errorf("trace: %w\n%s", err, s.systems[v.kind].Said())
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(s.systems[v.kind].Output)
	if err != nil {
		return nil, fmt.Errorf("read what the daemon logged: %w", err)
	}
	return stagesIn(string(text), v.String())
}

// ended is the daemon's log entry for the end of an operation, as JSON.
type ended struct {
	Msg    string `json:"msg"`
	Verb   string `json:"verb"`
	Stages []struct {
		Stage string  `json:"stage"`
		MS    float64 `json:"ms"`
	} `json:"stages"`
}

// stagesIn collects the stages of operations from a log, in the order in which
// they came first.
func stagesIn(log, variant string) ([]report.Stage, error) {
	type key struct{ verb, stage string }
	var order []key
	times := map[key][]float64{}
	for line := range strings.Lines(log) {
		var e ended
		if json.Unmarshal([]byte(line), &e) != nil || e.Msg != "operation ended" {
			continue
		}
		for _, s := range e.Stages {
			k := key{e.Verb, s.Stage}
			if !slices.Contains(order, k) {
				order = append(order, k)
			}
			times[k] = append(times[k], s.MS)
		}
	}
	if len(order) == 0 {
		return nil, fmt.Errorf("trace of %s: the daemon logged no operation", variant)
	}
	var out []report.Stage
	for _, k := range order {
		out = append(out, report.Stage{Variant: variant, Operation: k.verb, Stage: k.stage, P50: report.Quantile(times[k], 0.5), Count: len(times[k])})
	}
	return out, nil
}
