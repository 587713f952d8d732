package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"fairlead.run/test/bench/cpuprofile"
	"fairlead.run/test/bench/gauge"
	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/peer"
	"fairlead.run/test/bench/report"
)

// profiledFunctions is how many functions of the daemon are shown.
const profiledFunctions = 12

// profile says what pods that start and end one at a time cost in processor
// time: by process, and in the daemon by what it does.
func (b *bench) profile(ctx context.Context) ([]report.Profile, error) {
	var out []report.Profile
	for _, v := range []variant{{peer.FairleadCNI, "runc"}, {peer.FairleadBuiltin, "crun"}} {
		s, err := startAll(ctx, b.cfg, v.kind)
		if err != nil {
			return nil, err
		}
		t := s.target(v, nil)
		p, err := b.profileOf(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("profile: %w\n%s", err, t.System.Said())
		}
		if err := s.stop(); err != nil {
			return nil, err
		}
		p.Variant = v.String()
		b.say("%-14s %-34s daemon %.1f ms for each start, %d samples", "profile", v, p.Start.Daemon, p.Samples)
		out = append(out, p)
	}
	return out, nil
}

// profileOf starts all pods and then ends them, not one and then the other: so
// few readings of what was spent lose nothing to their units.
func (b *bench) profileOf(ctx context.Context, t load.Target) (p report.Profile, err error) {
	if err := t.Serial(ctx, 2, 0); err != nil { // links and chains are there
		return p, err
	}
	p.Pods = b.plan.profiled
	if err := sleep(ctx, b.plan.settle); err != nil {
		return p, err
	}
	rest, err := b.spent(ctx, t.System, func() error { return nil })
	if err != nil {
		return p, err
	}
	profiling, err := t.System.Profile(ctx)
	if err != nil {
		return p, err
	}
	var pods []*load.Pod
	start, err := b.spent(ctx, t.System, func() (err error) {
		pods, err = t.UpAll(ctx, 1, p.Pods)
		return err
	})
	if err != nil {
		return p, err
	}
	if err := profiling.End(); err != nil {
		return p, err
	}
	var packed bytes.Buffer
	if err := profiling.Copy(&packed); err != nil {
		return p, err
	}
	end, err := b.spent(ctx, t.System, func() error { return t.DownAll(ctx, 1, pods) })
	if err != nil {
		return p, err
	}
	p.Start, p.End = start.each(p.Pods, rest), end.each(p.Pods, rest)
	found, err := cpuprofile.Decode(packed.Bytes())
	if err != nil {
		return p, err
	}
	p.Samples = found.Count()
	p.InKernel = part(found.InKernel(), p.Samples)
	p.Areas = partsOf(found.Areas(), p.Samples)
	p.Functions = partsOf(found.Functions(profiledFunctions), p.Samples)
	return p, nil
}

func partsOf(list []cpuprofile.Part, samples int64) (out []report.Part) {
	for _, l := range list {
		out = append(out, report.Part{Name: l.Name, Part: part(l.Count, samples)})
	}
	return out
}

// part is 0 of nothing.
func part(n, of int64) float64 { return float64(n) / float64(max(of, 1)) }

// spending is what was spent in some time.
type spending struct {
	gauge.Spent
	took time.Duration
}

// spent measures something, with what the kernel does after it.
func (b *bench) spent(ctx context.Context, s *peer.System, do func() error) (spending, error) {
	d := gauge.Daemon{Pid: s.Pid(), Cgroup: s.Cgroup}
	before, err := d.Spent()
	if err != nil {
		return spending{}, err
	}
	if err := do(); err != nil {
		return spending{}, err
	}
	if err := sleep(ctx, b.plan.settle); err != nil {
		return spending{}, err
	}
	after, err := d.Spent()
	return spending{after.Sub(before), after.At.Sub(before.At)}, err
}

// each is what was spent for each of so many pods. What others on the machine
// spend at rest is taken off.
func (s spending) each(pods int, rest spending) report.Spent {
	per := func(d time.Duration) float64 { return ms(d) / float64(pods) }
	idle := time.Duration(float64(rest.Others()) * float64(s.took) / float64(rest.took))
	return report.Spent{
		Daemon: per(s.Daemon), Children: per(s.Children), Monitor: per(s.Monitor), Programs: per(s.Programs),
		Client: per(s.Client), Others: per(s.Others() - idle), InKernel: part(s.Kernel, s.Ticks),
	}
}
