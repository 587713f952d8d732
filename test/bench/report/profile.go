package report

import "fmt"

// Profile says where the processor time of pods goes that start one after the
// other, and then end one after the other.
type Profile struct {
	Variant string `json:"variant"`
	Pods    int    `json:"pods"`
	Start   Spent  `json:"start"`
	End     Spent  `json:"stop_and_remove"`
	// What the two programs were found doing while pods started.
	Daemon  Samples `json:"daemon"`
	Monitor Samples `json:"monitor"`
}

// Samples are the moments at which a program was found computing. The parts are
// those of their number.
type Samples struct {
	Count     int64   `json:"count"`
	InKernel  float64 `json:"in_kernel"`
	Areas     []Part  `json:"areas"`
	Functions []Part  `json:"functions"` // the largest, with all that they call
}

// Spent is processor time for each pod, in milliseconds.
type Spent struct {
	Daemon   float64 `json:"daemon"`
	Children float64 `json:"children"` // of the daemon: CNI plugins
	Monitor  float64 `json:"monitor"`
	Programs float64 `json:"programs"` // of the monitor: the OCI runtime that runs, and the container
	Client   float64 `json:"client"`   // the benchmark
	Others   float64 `json:"others"`   // the kernel's threads, and what else the machine did
	// InKernel is the part of all that was spent in the kernel, 0 to 1.
	InKernel float64 `json:"in_kernel"`
}

func (s Spent) all() float64 {
	return s.Daemon + s.Children + s.Monitor + s.Programs + s.Client + s.Others
}

// Part is a part of a program's samples, 0 to 1.
type Part struct {
	Name string  `json:"name"`
	Part float64 `json:"part"`
}

// whose are the rows of the table of processor time.
var whose = []struct {
	name string
	of   func(Spent) float64
}{
	{"daemon", func(s Spent) float64 { return s.Daemon }},
	{"programs that the daemon starts: CNI plugins", func(s Spent) float64 { return s.Children }},
	{"monitor", func(s Spent) float64 { return s.Monitor }},
	{"programs that the monitor starts: the OCI runtime, which becomes the container", func(s Spent) float64 { return s.Programs }},
	{"the benchmark, as a client", func(s Spent) float64 { return s.Client }},
	{"others: threads of the kernel that tidy up", func(s Spent) float64 { return s.Others }},
	{"all", Spent.all},
}

func (p *page) profile() {
	if len(p.r.Profile) == 0 {
		return
	}
	p.line("## Profile\n")
	p.line("The processor time of a pod in milliseconds: the mean of %d that start one at a time and end one at a time.\n", p.r.Profile[0].Pods)
	p.spent()
	for _, w := range programs {
		p.line("### What the %s does\n", w.name)
		p.samples(w.of, w.spent)
	}
}

// programs are those that are sampled.
var programs = []struct {
	name  string
	of    func(Profile) Samples
	spent func(Spent) float64
}{
	{"daemon", func(p Profile) Samples { return p.Daemon }, func(s Spent) float64 { return s.Daemon }},
	{"monitor", func(p Profile) Samples { return p.Monitor }, func(s Spent) float64 { return s.Monitor }},
}

// samples has two tables for each variant.
func (p *page) samples(of func(Profile) Samples, spent func(Spent) float64) {
	if of(p.r.Profile[0]).Count == 0 {
		p.line("Not known: the kernel of this machine let nobody look.\n")
		return
	}
	p.line("In its part of the starts, by samples. Beside each part is what it comes to for a pod, in milliseconds.\n")
	for _, f := range p.r.Profile {
		p.parts(f.Variant, of(f), parts{"%s", of(f).Areas, spent(f.Start)})
	}
	p.line("The largest of Fairlead's own functions, each with all that it calls:\n")
	for _, f := range p.r.Profile {
		p.parts(f.Variant, of(f), parts{"`%s`", of(f).Functions, spent(f.Start)})
	}
}

func (p *page) spent() {
	head, rule := "| ", "| ---"
	for _, f := range p.r.Profile {
		head += fmt.Sprintf(" | %s: start | stop and remove", f.Variant)
		rule += " | ---: | ---:"
	}
	p.line("%s |", head)
	p.line("%s |", rule)
	for _, w := range whose {
		row := "| " + w.name
		for _, f := range p.r.Profile {
			row += " | " + number(w.of(f.Start)) + " | " + number(w.of(f.End))
		}
		p.line("%s |", row)
	}
	row := "| part of all that is spent in the kernel"
	for _, f := range p.r.Profile {
		row += " | " + percent(f.Start.InKernel) + " | " + percent(f.End.InKernel)
	}
	p.line("%s |\n", row)
}

// parts are the rows of a table.
type parts struct {
	name string // how one is shown
	list []Part
	ms   float64 // of all
}

func (p *page) parts(variant string, of Samples, rows parts) {
	p.line("| %s: %d samples, %s of them in the kernel | part | ms |", variant, of.Count, percent(of.InKernel))
	p.line("| --- | ---: | ---: |")
	for _, part := range rows.list {
		p.line("| "+rows.name+" | %s | %s |", part.Name, percent(part.Part), number(part.Part*rows.ms))
	}
	p.line("")
}

func percent(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }
