package report

import (
	"fmt"
	"math"

	"fairlead.run/test/bench/load"
)

// Promise is one row of what the project has promised about its speed and size.
type Promise struct {
	What     string
	Measured bool
	Got      float64 // NaN if it was not measured
	Limit    float64
	AtLeast  bool   // Limit is a floor, not a ceiling
	Unit     string // empty: a ratio to containerd
	Kept     bool
	// Except is why it may be missed, in words that follow "missed"; empty: it may not.
	Except string
}

// promised is a promise before anything was measured.
type promised struct {
	what     string
	of, base Key // base is zero where the limit is absolute
	less     Key // zero where the limit is no difference
	limit    float64
	atLeast  bool
	unit     string // empty: a ratio to base
	except   string // why it may be missed
}

var (
	containerdRunc = Variant(Containerd, "runc", CNI)
	containerdCrun = Variant(Containerd, "crun", CNI)
	fairleadRunc   = Variant(Fairlead, "runc", CNI)
	fairleadCrun   = Variant(Fairlead, "crun", CNI)
	builtinRunc    = Variant(Fairlead, "runc", Builtin)
	builtinCrun    = Variant(Fairlead, "crun", Builtin)

	containerdRunsc = Variant(Containerd, "runsc", CNI)
	fairleadRunsc   = Variant(Fairlead, "runsc", CNI)
	builtinRunsc    = Variant(Fairlead, "runsc", Builtin)
)

// bar is the table of the project's design, section "Speed and size".
func bar() []promised {
	versus := func(what, metric, scenario, of, base string, limit float64) promised {
		return promised{what: what, of: Key{metric, scenario, of}, base: Key{metric, scenario, base}, limit: limit}
	}
	absolute := func(what, metric, scenario, unit string, limit float64) promised {
		return promised{what: what, of: Key{metric, scenario, fairleadRunc}, unit: unit, limit: limit}
	}
	rows := []promised{
		versus("pod start, same runc, same conflist", load.PodStart, Serial, fairleadRunc, containerdRunc, 0.40),
		versus("pod start, crun, built-in network", load.PodStart, Serial, builtinCrun, containerdCrun, 0.12),
		versus("stop and remove, same runc, same conflist", load.PodEnd, Serial, fairleadRunc, containerdRunc, 0.50),
		versus("stop and remove, runc, built-in network", load.PodEnd, Serial, builtinRunc, containerdRunc, 0.15),
		versus("stop and remove, crun, built-in network", load.PodEnd, Serial, builtinCrun, containerdCrun, 0.15),
		{
			what: "pods per second, 16 in parallel, same runc, same conflist",
			of:   Key{Rate, Sustained, fairleadRunc}, base: Key{Rate, Sustained, containerdRunc}, limit: 2.5, atLeast: true,
		},
		versus("ExecSync of true, runc", load.Exec, Serial, fairleadRunc, containerdRunc, 0.6),
		versus("ExecSync of true, crun", load.Exec, Serial, fairleadCrun, containerdCrun, 0.6),
		versus("memory per idle pod beside the workload", PerPod, Between(20, 300), fairleadRunc, containerdRunc, 0.02),
		absolute("memory per idle pod beside the workload", PerPod, Between(20, 300), "MB", 0.1),
		absolute("daemon and monitor at 100 pods", Memory, Idle(100), "MB", 45),
		absolute("CPU at rest with 100 pods", CPU, Idle(100), "% of a core", 0.1),
		{
			what: "restart among 200 pods, until the first answer", unit: "ms",
			of: Key{Answer, Restart(RestartPods), builtinCrun}, limit: 100,
		},
		{
			what: "restart among 200 pods, until all are observed", unit: "ms",
			of: Key{Observed, Restart(RestartPods), builtinCrun}, limit: 1000,
		},
	}
	rows = append(rows, looks()...)
	rows = append(rows,
		versus("pod start, gVisor, built-in network", load.PodStart, GVisor, builtinRunsc, containerdRunsc, 0.6),
		promised{what: "pod start, gVisor, built-in network", unit: "ms", of: Key{load.PodStart, GVisor, builtinRunsc}, limit: 150},
		promised{what: "second container of a pod, gVisor", unit: "ms", of: Key{load.Second, GVisor, builtinRunsc}, limit: 60},
	)
	for _, mb := range []int{2, 45, 300} {
		name := fmt.Sprintf("pull %d MB", mb)
		rows = append(rows, versus("pull and unpack of "+name[len("pull "):], load.PullTime, name, builtinRunc, containerdRunc, 1.0))
	}
	return rows
}

// The calls that only look may take so long among so many containers.
const (
	lookLimit = 5 // ms
	lookAmong = 500
)

// looks are the rows of the calls that list all pods or containers, or tell of one.
func looks() []promised {
	var rows []promised
	for _, call := range []string{
		load.ListPods, load.ListContainers, load.ListStats, load.ListPodStats, load.ListMetrics,
		load.PodStatus, load.ContainerStatus, load.Status, load.ContainerStats, load.PodStats,
	} {
		p := promised{what: call + " with " + Crowd(lookAmong), of: Key{call, Crowd(lookAmong), fairleadRunc}, unit: "ms", limit: lookLimit}
		if call == load.ListMetrics {
			p.except = "as [its client needs longer to decode it](#what-a-list-of-very-many-containers-is-made-of)"
		}
		rows = append(rows, p)
	}
	return rows
}

// Promises compares what was measured with what was promised. What was not
// measured is there too, and not kept.
func (r *Result) Promises() []Promise { return r.compared(bar()) }

// compared is what became of promises.
func (r *Result) compared(bar []promised) []Promise {
	var out []Promise
	for _, b := range bar {
		p := Promise{What: b.what, Limit: b.limit, AtLeast: b.atLeast, Unit: b.unit, Except: b.except}
		p.Got, p.Measured = r.got(b)
		p.Kept = p.Measured && p.Got <= p.Limit
		if p.AtLeast {
			p.Kept = p.Measured && p.Got >= p.Limit
		}
		out = append(out, p)
	}
	return out
}

// got is what was measured of a promise: a median, or the ratio or difference of two.
func (r *Result) got(b promised) (float64, bool) {
	of, ok := r.Find(b.of)
	if !ok {
		return math.NaN(), false
	}
	if b.less != (Key{}) {
		less, ok := r.Find(b.less)
		return of.P50 - less.P50, ok
	}
	if b.base == (Key{}) {
		return of.P50, true
	}
	base, ok := r.Find(b.base)
	if !ok {
		return math.NaN(), false
	}
	return of.P50 / base.P50, true
}

// Verdict says in a word or two what became of the promise.
func (p Promise) Verdict() string {
	switch {
	case !p.Measured:
		return "not measured"
	case p.Kept:
		return "holds"
	case p.Except != "":
		return "missed, " + p.Except
	}
	return "MISSED"
}
