package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.run/test/bench/cpuprofile"
	"fairlead.run/test/bench/gauge"
	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/peer"
	"fairlead.run/test/bench/perfevent"
	"fairlead.run/test/bench/report"
)

const (
	// profiledFunctions is how many functions of the daemon are shown.
	profiledFunctions = 12
	// profiledAtOnce is how many pods run at most while pods are profiled.
	profiledAtOnce = 20
	// afterwards is how long the kernel gets to tidy up behind starts and ends.
	afterwards = 500 * time.Millisecond
)

// profile says what pods that start and end one at a time cost in processor
// time: by process, and in daemon and monitor by what they do.
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
		b.say("%-14s %-34s daemon %.1f ms for each start, %d samples", "profile", v, p.Start.Daemon, p.Daemon.Count+p.Monitor.Count)
		out = append(out, p)
	}
	return out, nil
}

// profileOf starts some pods and then ends them, and again, until there were
// enough. Not one at a time: each reading of what was spent loses a little to
// its units. Not all: with hundreds that run, the kernel takes longer for each.
func (b *bench) profileOf(ctx context.Context, t load.Target) (p report.Profile, err error) {
	if err := t.Serial(ctx, 2, 0); err != nil { // links and chains are there
		return p, err
	}
	if err := sleep(ctx, b.plan.settle); err != nil {
		return p, err
	}
	rest, err := spent(t.System, func() error { return sleep(ctx, b.plan.settle) })
	if err != nil {
		return p, err
	}
	c, err := b.newCosts(t.System)
	if err != nil {
		return p, err
	}
	for p.Pods < b.plan.profiled {
		n := min(profiledAtOnce, b.plan.profiled-p.Pods)
		if err := c.add(ctx, t, n); err != nil {
			return p, err
		}
		p.Pods += n
	}
	p.Start, p.End = c.start.each(p.Pods, rest), c.end.each(p.Pods, rest)
	p.Daemon = samplesOf(&c.daemon.profile, cpuprofile.Daemon)
	p.Monitor = samplesOf(&c.monitor.profile, cpuprofile.Monitor)
	return p, nil
}

// costs are those of all pods so far.
type costs struct {
	b               *bench
	start, end      spending
	daemon, monitor sampled // while pods started
}

// sampled is a program with what it was found doing.
type sampled struct {
	pids    []int
	program *perfevent.Program
	profile cpuprofile.Profile
}

func (b *bench) newCosts(s *peer.System) (*costs, error) {
	c := &costs{b: b}
	var failed, err error
	if c.monitor.pids, failed = (gauge.Daemon{Pid: s.Pid(), Cgroup: s.Cgroup}).Monitor(); failed != nil {
		return nil, failed
	}
	c.daemon.pids = []int{s.Pid()}
	c.daemon.program, failed = perfevent.Open(b.cfg.Programs["fairlead"])
	c.monitor.program, err = perfevent.Open(b.cfg.Programs["fairlead-monitor"])
	return c, errors.Join(failed, err)
}

// add starts and ends some more pods.
func (c *costs) add(ctx context.Context, t load.Target, n int) error {
	sampler, err := perfevent.Start(slices.Concat(c.daemon.pids, c.monitor.pids)...)
	if errors.Is(err, perfevent.ErrRefused) {
		c.b.say("LEFT OUT: what daemon and monitor do in their processor time: %v", err)
	} else if err != nil {
		return err
	}
	var pods []*load.Pod
	start, err := spent(t.System, func() (err error) {
		if pods, err = t.UpAll(ctx, 1, n); err != nil {
			return err
		}
		return sleep(ctx, afterwards)
	})
	if sampler != nil {
		found, e := sampler.End()
		err = errors.Join(err, e)
		c.daemon.take(found)
		c.monitor.take(found)
	}
	if err != nil {
		return err
	}
	end, err := spent(t.System, func() error {
		return errors.Join(t.DownAll(ctx, 1, pods), sleep(ctx, afterwards))
	})
	c.start, c.end = c.start.plus(start), c.end.plus(end)
	return err
}

// take adds the program's own samples.
func (s *sampled) take(found []perfevent.Sample) {
	for _, f := range found {
		if slices.Contains(s.pids, f.PID) {
			s.profile.Samples = append(s.profile.Samples, cpuprofile.Sample{Stack: s.program.Names(f.PCs), Kernel: f.Kernel})
		}
	}
}

func samplesOf(p *cpuprofile.Profile, areas cpuprofile.Areas) report.Samples {
	n := p.Count()
	return report.Samples{
		Count: n, InKernel: part(p.InKernel(), n),
		Areas: partsOf(p.Areas(areas), n), Functions: partsOf(p.Functions(profiledFunctions), n),
	}
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

func (s spending) plus(more spending) spending {
	return spending{s.Add(more.Spent), s.took + more.took}
}

// spent measures something.
func spent(s *peer.System, do func() error) (spending, error) {
	d := gauge.Daemon{Pid: s.Pid(), Cgroup: s.Cgroup}
	before, err := d.Spent()
	if err != nil {
		return spending{}, err
	}
	if err := do(); err != nil {
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
