package report

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"fairlead.run/test/bench/load"
)

// notes is what the numbers mean, in words. It has none of its own.
//
//go:embed notes.md
var notes string

// rpcs are the calls in the order in which a kubelet makes them.
var rpcs = []string{
	load.RunPod, load.Create, load.StartContainer, load.PodStart, load.FirstLine, load.Second,
	load.StopContainer, load.StopPod, load.RemoveContainer, load.RemovePod, load.PodEnd, load.Exec,
}

// page builds a document of Markdown.
type page struct {
	strings.Builder
	r *Result
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// Page shows a result as Markdown. plot is the name of the picture.
func (r *Result) Page(plot string) string {
	p := &page{r: r}
	p.line("# Performance\n")
	p.line("<!-- Written by test/bench; run \"make bench\" to write it anew, and change the words in test/bench/report/notes.md. -->\n")
	p.line("Fairlead and containerd, made to do the same work in turns on one machine. All times are in milliseconds.\n")
	p.warnings()
	p.machine()
	p.promises()
	p.line("![Pod start, and stop and remove, by call](%s)\n", plot)
	p.calls()
	p.rates()
	p.atRest()
	p.pulls()
	p.restarts()
	p.trace()
	p.profile()
	p.WriteString(strings.TrimRight(notes, "\n") + "\n")
	return p.String()
}

// warnings say what is to be thought of before the numbers.
func (p *page) warnings() {
	if p.r.Short {
		p.line("**This was a short run, made to see whether the benchmark works. Its numbers mean little.**\n")
	}
	if m := p.r.Machine; m.Load > Calm*float64(m.CPUs) {
		p.line("**The machine was not at rest: its load in the minute before was %.2f on %d processors. Milliseconds and processor time mean little, ratios less than usual.**\n", m.Load, m.CPUs)
	}
}

func (p *page) machine() {
	m := p.r.Machine
	p.line("## Where and what\n")
	p.line("| | |")
	p.line("| --- | --- |")
	p.line("| date | %s, for %s |", p.r.Date.Format("2006-01-02 15:04 MST"), p.r.Took)
	p.line("| machine | %d x %s, %d MB of memory |", m.CPUs, m.CPU, m.MemMB)
	p.line("| system | %s, Linux %s, %s |", m.OS, m.Kernel, m.Cgroups)
	p.line("| disk | %s |", m.Disk)
	p.line("| load before | %.2f |", m.Load)
	for _, name := range sortedKeys(p.r.Programs) {
		p.line("| %s | %s |", name, p.r.Programs[name])
	}
	p.line("")
}

func (p *page) promises() {
	p.line("## What was promised\n")
	p.line("Ratios are to containerd with the same OCI runtime and the CNI bridge, in the same run.\n")
	p.rows(p.r.Promises())
}

func (p *page) rows(promises []Promise) {
	p.line("| | measured | limit | |")
	p.line("| --- | ---: | ---: | --- |")
	for _, row := range promises {
		p.line("| %s | %s | %s | %s |", row.What, number(row.Got), row.limit(), row.Verdict())
	}
	p.line("")
}

// scenarios are those in which a metric was measured, in the order of the run.
func (p *page) scenarios(metric string) []string {
	var out []string
	for _, s := range p.r.Series {
		if s.Metric == metric && !slices.Contains(out, s.Scenario) {
			out = append(out, s.Scenario)
		}
	}
	return out
}

func (p *page) variants(scenario string) []string {
	var out []string
	for _, s := range p.r.Series {
		if s.Scenario == scenario && !slices.Contains(out, s.Variant) {
			out = append(out, s.Variant)
		}
	}
	order := []string{containerdRunc, fairleadRunc, builtinRunc, containerdCrun, fairleadCrun, builtinCrun, containerdRunsc, fairleadRunsc, builtinRunsc, NodeKubelet, NodeFairlead}
	slices.SortStableFunc(out, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return out
}

// calls has a table for each scenario: median and 95th percentile of each call.
func (p *page) calls() {
	p.line("## Calls\n")
	p.line("Median and 95th percentile. \"%s\" is the first three calls together, \"%s\" the same until the container's first", load.PodStart, load.FirstLine)
	p.line("line is in its log, and \"%s\" the four calls that end a pod.\n", load.PodEnd)
	for _, scenario := range p.scenarios(load.PodStart) {
		p.line("### %s\n", strings.ToUpper(scenario[:1])+scenario[1:])
		p.table(scenario, rpcs)
	}
}

func (p *page) table(scenario string, metrics []string) {
	variants := p.variants(scenario)
	p.line("| | %s |", strings.Join(variants, " | "))
	p.line("| ---%s |", strings.Repeat(" | ---:", len(variants)))
	for _, metric := range metrics {
		row, any := "| "+metric, false
		for _, v := range variants {
			s, ok := p.r.Find(Key{metric, scenario, v})
			any = any || ok
			cell := "-"
			if ok {
				cell = number(s.P50)
				if s.Count > 1 {
					cell += " / " + number(s.P95)
				}
			}
			row += " | " + cell
		}
		if any {
			p.line("%s |", row)
		}
	}
	p.line("")
}

// rates shows the median of the rounds and how far they are apart: of so few,
// a 95th percentile would say nothing.
func (p *page) rates() {
	variants := p.variants(Sustained)
	if len(variants) == 0 {
		return
	}
	p.line("## Pods per second\n")
	p.line("Whole lives of pods (run, create, start, stop, remove) by 16 clients at once: the median of the rounds, and their range.\n")
	p.line("| | %s |", strings.Join(variants, " | "))
	p.line("| ---%s |", strings.Repeat(" | ---:", len(variants)))
	row := "| " + Rate
	for _, v := range variants {
		s, ok := p.r.Find(Key{Rate, Sustained, v})
		cell := "-"
		if ok {
			cell = number(s.P50)
		}
		if len(s.Rounds) > 1 {
			cell += fmt.Sprintf(" (%s to %s)", number(slices.Min(s.Rounds)), number(slices.Max(s.Rounds)))
		}
		row += " | " + cell
	}
	p.line("%s |\n", row)
}

func (p *page) atRest() {
	scenarios := p.scenarios(Memory)
	if len(scenarios) == 0 {
		return
	}
	p.line("## At rest\n")
	p.line("Nobody asks for anything. Memory is the proportional share (PSS) of the daemon and of all that it keeps for pods:")
	p.line("Fairlead's monitor; containerd's shims and pause processes. The workload is not in it. MB are 10^6 bytes.\n")
	for _, metric := range []string{Memory, PerPod, CPU} {
		p.rest(metric)
	}
	p.line("Calls that only look:\n")
	for _, scenario := range p.scenarios(load.ListContainers) {
		p.line("With %s:\n", strings.TrimPrefix(scenario, "idle, "))
		p.table(scenario, []string{
			load.ListPods, load.ListContainers, load.PodStatus, load.ContainerStatus, load.Status,
			load.ContainerStats, load.PodStats, load.ListStats, load.ListPodStats, load.ListMetrics, load.DecodeMetrics,
		})
	}
}

// rest has a table of a metric at rest, if it was measured.
func (p *page) rest(metric string) {
	of := p.scenarios(metric)
	if len(of) == 0 {
		return
	}
	variants := p.variants(of[0])
	s, _ := p.r.Find(Key{metric, of[0], variants[0]})
	p.line("| %s, %s | %s |", metric, s.Unit, strings.Join(variants, " | "))
	p.line("| ---%s |", strings.Repeat(" | ---:", len(variants)))
	for _, scenario := range of {
		p.restRow(metric, scenario, variants)
	}
	p.line("")
}

func (p *page) restRow(metric, scenario string, variants []string) {
	row, any := "| "+strings.TrimPrefix(scenario, "idle, "), false
	for _, v := range variants {
		s, ok := p.r.Find(Key{metric, scenario, v})
		any = any || ok
		row += " | " + number(s.P50)
	}
	if any {
		p.line("%s |", row)
	}
}

func (p *page) pulls() {
	scenarios := p.scenarios(load.PullTime)
	if len(scenarios) == 0 {
		return
	}
	p.line("## Pull and unpack\n")
	p.line("From a registry on the same machine, over loopback; sizes are what is fetched. Nothing of the image is there before.\n")
	variants := p.variants(scenarios[0])
	p.line("| | %s |", strings.Join(variants, " | "))
	p.line("| ---%s |", strings.Repeat(" | ---:", len(variants)))
	for _, scenario := range scenarios {
		row := "| " + strings.TrimPrefix(scenario, "pull ")
		for _, v := range variants {
			s, _ := p.r.Find(Key{load.PullTime, scenario, v})
			row += " | " + number(s.P50)
		}
		p.line("%s |", row)
	}
	p.line("")
}

func (p *page) restarts() {
	scenarios := p.scenarios(Answer)
	if len(scenarios) == 0 {
		return
	}
	p.line("## Restart\n")
	p.line("The daemon is killed with SIGKILL and started again while its pods run. Milliseconds from the start of its process.\n")
	p.line("| | median | longest | restarts |")
	p.line("| --- | ---: | ---: | ---: |")
	for _, s := range p.r.Series {
		if s.Scenario == scenarios[0] && len(s.Rounds) > 0 {
			p.line("| %s, %s, %s | %s | %s | %d |", strings.TrimPrefix(s.Scenario, "restart, "), s.Variant, s.Metric, number(s.P50), number(slices.Max(s.Rounds)), s.Count)
		}
	}
	p.line("")
}

func (p *page) trace() {
	if len(p.r.Trace) == 0 {
		return
	}
	p.line("## Where the time of a pod goes\n")
	p.line("The stages that Fairlead's daemon reports of each operation, one pod at a time, medians.\n")
	var variants, rows []string
	cells := map[string]string{}
	for _, t := range p.r.Trace {
		row := t.Operation + " | " + t.Stage
		if !slices.Contains(variants, t.Variant) {
			variants = append(variants, t.Variant)
		}
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		cells[row+t.Variant] = number(t.P50)
	}
	p.line("| operation | stage | %s |", strings.Join(variants, " | "))
	p.line("| --- | ---%s |", strings.Repeat(" | ---:", len(variants)))
	for _, row := range rows {
		line := "| " + row
		for _, v := range variants {
			cell, ok := cells[row+v]
			if !ok {
				cell = "-"
			}
			line += " | " + cell
		}
		p.line("%s |", line)
	}
	p.line("")
}
