package report

import (
	"fmt"

	"fairlead.run/test/bench/load"
)

// Promise is one row of what the project has promised about its speed and size.
type Promise struct {
	What    string
	Got     float64
	Limit   float64
	AtLeast bool   // Limit is a floor, not a ceiling
	Unit    string // empty: a ratio to containerd
	Kept    bool
}

// promised is a promise before anything was measured.
type promised struct {
	what     string
	of, base Key // base is zero where the limit is absolute
	limit    float64
	atLeast  bool
}

var (
	containerdRunc = Variant(Containerd, "runc", CNI)
	containerdCrun = Variant(Containerd, "crun", CNI)
	fairleadRunc   = Variant(Fairlead, "runc", CNI)
	fairleadCrun   = Variant(Fairlead, "crun", CNI)
	builtinRunc    = Variant(Fairlead, "runc", Builtin)
	builtinCrun    = Variant(Fairlead, "crun", Builtin)
)

// bar is the table of the project's design, section "Speed and size".
func bar() []promised {
	versus := func(what, metric, scenario, of, base string, limit float64) promised {
		return promised{what: what, of: Key{metric, scenario, of}, base: Key{metric, scenario, base}, limit: limit}
	}
	absolute := func(what, metric, scenario, of string, limit float64) promised {
		return promised{what: what, of: Key{metric, scenario, of}, limit: limit}
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
		versus("memory per idle pod beside the workload", PerPod, Idle(100), fairleadRunc, containerdRunc, 0.02),
		absolute("memory per idle pod beside the workload", PerPod, Idle(100), fairleadRunc, 0.1),
		absolute("daemon and monitor at 100 pods", Memory, Idle(100), fairleadRunc, 45),
		absolute("CPU at rest with 100 pods", CPU, Idle(100), fairleadRunc, 0.1),
	}
	for _, mb := range []int{2, 45, 300} {
		name := fmt.Sprintf("pull %d MB", mb)
		rows = append(rows, versus("pull and unpack of "+name[len("pull "):], load.PullTime, name, builtinRunc, containerdRunc, 1.0))
	}
	return rows
}

// Promises compares what was measured with what was promised. What was not
// measured is left out.
func (r *Result) Promises() []Promise {
	var out []Promise
	for _, b := range bar() {
		of, ok := r.Find(b.of)
		if !ok {
			continue
		}
		p := Promise{What: b.what, Got: of.P50, Limit: b.limit, AtLeast: b.atLeast, Unit: of.Unit}
		if b.base != (Key{}) {
			base, ok := r.Find(b.base)
			if !ok {
				continue
			}
			p.Got, p.Unit = of.P50/base.P50, ""
		}
		p.Kept = p.Got <= p.Limit
		if p.AtLeast {
			p.Kept = p.Got >= p.Limit
		}
		out = append(out, p)
	}
	return out
}
