package cpuprofile

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Part is a name for some of the samples.
type Part struct {
	Name  string
	Count int64
}

// Rest is the area of what belongs to no other.
const Rest = "the rest"

// areas are what the daemon does, each with the beginnings of the names of
// functions that do it. Of the functions of a sample, the innermost counts that
// is in any area.
var areas = []struct {
	name  string
	begin []string
}{
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
	{"collecting garbage", []string{
		"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.gcStart", "runtime.gcMarkDone", "runtime.gcMarkTermination",
		"runtime.bgsweep", "runtime.bgscavenge", "runtime.deductSweepCredit",
	}},
	{"Go's scheduler", []string{"runtime.mcall", "runtime.mstart", "runtime.sysmon", "runtime.schedule", "runtime.goexit0", "runtime.notesleep"}},
}

// area is the one that a function is in, or nothing.
func area(function string) string {
	for _, a := range areas {
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
func (p *Profile) Areas() []Part {
	counts := map[string]int64{}
	for _, s := range p.Samples {
		name := Rest
		for _, f := range s.Stack {
			if a := area(f); a != "" {
				name = a
				break
			}
		}
		counts[name] += s.Count
	}
	return sorted(counts)
}

// InKernel is how many of the samples are in a system call.
func (p *Profile) InKernel() (n int64) {
	for _, s := range p.Samples {
		if len(s.Stack) > 0 && kernel.MatchString(s.Stack[0]) {
			n += s.Count
		}
	}
	return n
}

// kernel are the functions that only enter the kernel, by their names without
// the package.
var kernel = regexp.MustCompile(`(?i)[./](syscall6?|rawsyscall\w*|rawvforksyscall|futex|epollwait|usleep|osyield|madvise|mmap|munmap|clone|tgkill|rt_sigreturn|write1|read)$`)

const own = "fairlead.run/internal/"

// passing are functions of ours that nearly every sample is in, as everything
// is called through them.
var passing = []string{"criserver.", "lifecycle/ops."}

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
				f = &function{name: name, in: map[int]int64{}, depth: len(s.Stack) - at}
				byName[name], found = f, append(found, f)
			}
			f.in[i] = s.Count
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
	in    map[int]int64 // samples, and how often each was
	depth int           // from the outermost, in its first sample
}

func (f *function) count() (n int64) {
	for _, c := range f.in {
		n += c
	}
	return n
}

// within says that whatever f does it does for g, which does little else: a
// fifth at most.
func (f *function) within(g *function) bool {
	for i := range f.in {
		if _, ok := g.in[i]; !ok {
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
