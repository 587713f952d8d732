package cpuprofile

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Profile is what a program was found doing.
type Profile struct {
	Samples []Sample
}

// Sample is one way of calls, on which the program was once.
type Sample struct {
	// Stack has the names of functions, the innermost first.
	Stack  []string
	Kernel bool // it was in the kernel
}

// Count is the number of all samples.
func (p *Profile) Count() int64 { return int64(len(p.Samples)) }

// Part is a name for some of the samples.
type Part struct {
	Name  string
	Count int64
}

// Rest is the area of what belongs to no other.
const Rest = "the rest"

// Areas are what a program does, each with the beginnings of the names of
// functions that do it. Of the functions of a sample, the innermost counts that
// is in any area.
type Areas []struct {
	name  string
	begin []string
}

// Daemon are the areas of the daemon.
var Daemon = append(Areas{
	{"calls: gRPC and protobuf", []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "golang.org/x/net/http2", "k8s.io/cri-api", "fairlead.run/internal/criserver",
	}},
	{"operations: the core, locks, undo", []string{"fairlead.run/internal/lifecycle", "fairlead.run/internal/undo", "fairlead.run/internal/keylock"}},
	{"the record: bbolt", []string{"go.etcd.io/bbolt", "fairlead.run/internal/store"}},
	{"namespaces and files of the sandbox", []string{"fairlead.run/internal/sandbox"}},
	{"netlink and nftables", []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "github.com/google/nftables", "github.com/mdlayher/netlink"}},
	{"network beside that", []string{"fairlead.run/internal/network", "github.com/containernetworking"}},
	{"images and root file systems", []string{"fairlead.run/internal/image", "fairlead.run/internal/rootfs", "github.com/containerd"}},
	{"specification and JSON", []string{"fairlead.run/internal/spec", "encoding/json", "github.com/opencontainers"}},
	{"runtime handlers and cgroups", []string{"fairlead.run/internal/runtime"}},
	{"talking to the monitor", []string{"fairlead.run/internal/monitor"}},
	{"starting programs and waiting for them", []string{"os/exec.", "os.StartProcess", "os.(*Process)", "syscall.forkExec"}},
}, runtimes...)

// Monitor are the areas of the monitor.
var Monitor = append(Areas{
	{"starting the OCI runtime and waiting for it", []string{"fairlead.run/internal/monitor/launch", "fairlead.run/internal/sealed", "os/exec.", "os.StartProcess", "syscall.forkExec"}},
	{"output: FIFOs, terminals and logs", []string{
		"fairlead.run/internal/monitor/stream", "fairlead.run/internal/monitor/stdio", "fairlead.run/internal/monitor/crilog", "fairlead.run/internal/monitor/journal",
	}},
	{"records", []string{"fairlead.run/internal/monitor/record", "fairlead.run/internal/atomicfile"}},
	{"cgroups and who ran out of memory", []string{"fairlead.run/internal/monitor/cgroup"}},
	{"requests", []string{
		"fairlead.run/internal/monitor/wire", "fairlead.run/internal/monitor/answer", "fairlead.run/internal/monitor/request", "encoding/json",
	}},
	{"one process for the other", []string{"fairlead.run/internal/monitor/outer", "fairlead.run/internal/monitor/handover"}},
	{"processes and their ends", []string{"fairlead.run/internal/monitor/inner", "fairlead.run/internal/monitor/orphan"}},
}, runtimes...)

// runtimes are the areas of every program in Go.
var runtimes = Areas{
	{"collecting garbage", []string{
		"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.gcStart", "runtime.gcMarkDone", "runtime.gcMarkTermination",
		"runtime.bgsweep", "runtime.bgscavenge", "runtime.deductSweepCredit",
	}},
	{"Go's scheduler", []string{"runtime.mcall", "runtime.mstart", "runtime.sysmon", "runtime.schedule", "runtime.goexit0", "runtime.notesleep"}},
}

// of is the area that a function is in, or nothing.
func (all Areas) of(function string) string {
	for _, a := range all {
		for _, b := range a.begin {
			if strings.HasPrefix(function, b) {
				return a.name
			}
		}
	}
	return ""
}

// Areas are what the samples are spent on, the largest first. Together they are
// all samples.
func (p *Profile) Areas(all Areas) []Part {
	counts := map[string]int64{}
	for _, s := range p.Samples {
		name := Rest
		for _, f := range s.Stack {
			if a := all.of(f); a != "" {
				name = a
				break
			}
		}
		counts[name]++
	}
	return sorted(counts)
}

// InKernel is how many of the samples are in the kernel.
func (p *Profile) InKernel() (n int64) {
	for _, s := range p.Samples {
		if s.Kernel {
			n++
		}
	}
	return n
}

const own = "fairlead.run/internal/"

// passing are functions of ours that nearly every sample is in, as everything
// is called through them.
var passing = []string{
	"criserver.", "lifecycle/ops.", "monitor.", "monitor/inner.Run", "monitor/inner.(*Inner).serve", "monitor/inner.(*Inner).converse",
	"monitor/inner.(*Inner).answerOne", "monitor/outer.Run",
}

// closure is what a compiler adds to the name of a function for those within.
var closure = regexp.MustCompile(`(\.(func|gowrap|deferwrap)?\d+|-range\d+)+$`)

// generic are the types that a compiler has put into a function.
var generic = regexp.MustCompile(`\[.*\]`)

// Functions are those of Fairlead in which the most samples are, with all that
// they call. One that does little but call another stands for both.
func (p *Profile) Functions(limit int) (out []Part) {
	var found []*function
	byName := map[string]*function{}
	for i, s := range p.Samples {
		for at, name := range s.Stack {
			name, ours := strings.CutPrefix(generic.ReplaceAllString(closure.ReplaceAllString(name, ""), "[...]"), own)
			if !ours || slices.ContainsFunc(passing, func(b string) bool { return strings.HasPrefix(name, b) }) {
				continue
			}
			f := byName[name]
			if f == nil {
				f = &function{name: name, in: map[int]bool{}, depth: len(s.Stack) - at}
				byName[name], found = f, append(found, f)
			}
			f.in[i] = true
		}
	}
	slices.SortFunc(found, func(a, b *function) int {
		return cmp.Or(cmp.Compare(b.count(), a.count()), cmp.Compare(a.depth, b.depth), cmp.Compare(a.name, b.name))
	})
	var kept []*function
	for _, f := range found {
		if len(kept) < limit && !slices.ContainsFunc(kept, f.within) {
			kept = append(kept, f)
			out = append(out, Part{f.name, f.count()})
		}
	}
	return out
}

// function is one that samples are in.
type function struct {
	name  string
	in    map[int]bool // samples
	depth int          // from the outermost, in its first sample
}

func (f *function) count() int64 { return int64(len(f.in)) }

// within says that whatever f does it does for g, which does little else: a
// fifth at most.
func (f *function) within(g *function) bool {
	for i := range f.in {
		if !g.in[i] {
			return false
		}
	}
	return 5*f.count() >= 4*g.count()
}

func sorted(counts map[string]int64) []Part {
	var out []Part
	for name, n := range counts {
		out = append(out, Part{name, n})
	}
	slices.SortFunc(out, func(a, b Part) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	return out
}
