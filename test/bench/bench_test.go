package main

import (
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.run/test/bench/gauge"
	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/perfevent"
	"fairlead.run/test/bench/report"
)

// The programs are the static ones that users run, without a race detector:
// this is about the benchmark.
func build(t *testing.T, to string) {
	t.Helper()
	for _, args := range [][]string{
		{"go", "build", "-tags", "grpcnotrace nri_no_wasm", "-o", to + "/", "../../cmd/fairlead", "../../cmd/fairlead-monitor", "."},
		{"gcc", "-Os", "-static", "-o", to + "/idle", "workload/idle.c"},
		{"gcc", "-Os", "-static", "-o", to + "/crun-1.1", "workload/crun.c"},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestShortRun fails if the benchmark does not work any more, leaves something
// out, or leaves something behind. Of containerd, which takes minutes to build,
// there is nothing in it; "make bench-short" has that.
func TestShortRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, name := range []string{"gcc", "runc", "crun", "iptables", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s", name)
		}
	}
	const plugins = "/usr/lib/cni"
	if _, err := os.Stat(plugins + "/portmap"); err != nil {
		t.Skip("needs the CNI plugins (Debian: containernetworking-plugins)")
	}
	dir := t.TempDir()
	build(t, dir)
	runsc := os.Getenv("FAIRLEAD_TEST_RUNSC")
	if runsc != "" { // without it that part is left out
		if err := os.Symlink(runsc, filepath.Join(dir, "runsc")); err != nil {
			t.Fatal(err)
		}
	}
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.json")
	page := filepath.Join(dir, "out.md")
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "bench"), "-short", "-programs", dir, "-fairlead", dir,
		"-plugins", plugins, "-tmp", tmp, "-json", out, "-page", page)
	arena := runIn(t, cmd, tmp)
	r, err := report.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	wantComplete(t, r)
	if runsc != "" {
		wantSandboxes(t, r)
	}
	for _, path := range []string{page, filepath.Join(dir, "out.svg")} {
		if st, err := os.Stat(path); err != nil || st.Size() < 500 {
			t.Errorf("no page or plot: %v, %v", st, err)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	for _, above := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		if left, _ := filepath.Glob(above + arena); len(left) > 0 {
			t.Errorf("cgroups left behind: %v", left)
		}
	}
}

// runIn runs the benchmark and says how its arena is called. That is only seen
// while it runs; other benchmarks on the machine have arenas with other names.
func runIn(t *testing.T, cmd *exec.Cmd, tmp string) (arena string) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil || arena == "" {
				t.Fatalf("the benchmark failed, in arena %q: %v\n%s", arena, err, &said)
			}
			return arena
		case <-time.After(20 * time.Millisecond):
		}
		if found, _ := filepath.Glob(filepath.Join(tmp, "flbench-*")); len(found) > 0 {
			arena = filepath.Base(found[0])
		}
	}
}

// wanted looks for a series.
func wanted(t *testing.T, r *report.Result, metric, scenario, variant string) {
	t.Helper()
	s, ok := r.Find(report.Key{Metric: metric, Scenario: scenario, Variant: variant})
	if !ok || s.Count == 0 || s.P50 < 0 || s.P95 < s.P50 {
		t.Errorf("%s, %s, %s: %+v", metric, scenario, variant, s)
	}
}

// wantSandboxes looks for what was to be measured of gVisor.
func wantSandboxes(t *testing.T, r *report.Result) {
	t.Helper()
	for _, network := range []string{report.CNI, report.Builtin} {
		for _, metric := range []string{load.RunPod, load.PodStart, load.Second, load.Exec, load.PodEnd} {
			wanted(t, r, metric, report.GVisor, report.Variant(report.Fairlead, "runsc", network))
		}
	}
	if r.Programs["runsc"] == "" {
		t.Errorf("the version of runsc is not in %v", r.Programs)
	}
}

// wantComplete looks for everything else that was to be measured.
func wantComplete(t *testing.T, r *report.Result) {
	t.Helper()
	want := func(metric, scenario, variant string) {
		t.Helper()
		wanted(t, r, metric, scenario, variant)
	}
	for _, network := range []string{report.CNI, report.Builtin} {
		for _, handler := range []string{"runc", "crun"} {
			v := report.Variant(report.Fairlead, handler, network)
			for _, scenario := range []string{report.Serial, report.Parallel(4), report.Parallel(16)} {
				for _, metric := range []string{
					load.RunPod, load.Create, load.StartContainer, load.StopContainer, load.RemoveContainer,
					load.StopPod, load.RemovePod, load.PodStart, load.PodEnd, load.FirstLine,
				} {
					want(metric, scenario, v)
				}
			}
			want(load.Exec, report.Serial, v)
			want(report.Rate, report.Sustained, v)
		}
		v := report.Variant(report.Fairlead, "runc", network)
		for _, n := range shortPlan().idle {
			want(report.Memory, report.Idle(n), v)
			want(report.CPU, report.Idle(n), v)
		}
		// What a daemon has just given back may be more than so few pods need.
		if s, ok := r.Find(report.Key{Metric: report.PerPod, Scenario: report.Between(5, 20), Variant: v}); !ok || s.Count == 0 {
			t.Errorf("%s: memory of each pod is %+v", v, s)
		}
		for _, call := range []string{load.ListContainers, load.ContainerStatus, load.ListStats, load.ListPodStats, load.ListMetrics, load.DecodeMetrics} {
			for _, n := range shortPlan().crowd {
				want(call, report.Crowd(n), v)
			}
		}
	}
	for _, p := range shortPlan().pulls {
		want(load.PullTime, p.name(), report.Variant(report.Fairlead, "runc", report.Builtin))
	}
	for _, metric := range []string{report.Answer, report.Observed} {
		want(metric, report.Restart(shortPlan().restartPods), report.Variant(report.Fairlead, "crun", report.Builtin))
	}
	stages := map[string]bool{}
	for _, s := range r.Trace {
		stages[s.Operation+": "+s.Stage] = true
	}
	for _, s := range []string{"run pod: attach network", "create container: mount root file system", "start container: run"} {
		if !stages[s] {
			t.Errorf("the trace lacks %q; it has %v", s, stages)
		}
	}
	wantProfiles(t, r)
}

// wantProfiles looks for what each pod took, and, where the kernel lets this
// process look, for what it was spent on. The daemon starts programs for CNI only:
// nothing is run to delete a container.
func wantProfiles(t *testing.T, r *report.Result) {
	t.Helper()
	sampler, refused := perfevent.Start(os.Getpid())
	if refused == nil {
		if _, err := sampler.End(); err != nil {
			t.Error(err)
		}
	}
	var of []string
	for _, p := range r.Profile {
		of = append(of, p.Variant)
		plugins := strings.HasSuffix(p.Variant, report.CNI)
		if p.Pods != shortPlan().profiled || p.Start.Daemon <= 0 || p.End.Daemon <= 0 || p.Start.Monitor <= 0 || p.Start.Programs <= 0 ||
			(p.Start.Children > 0) != plugins || (p.End.Children > 0) != plugins {
			t.Errorf("profile: %+v", p)
		}
		for name, s := range map[string]report.Samples{"daemon": p.Daemon, "monitor": p.Monitor} {
			if refused == nil && (s.Count == 0 || s.InKernel == 0 || len(s.Areas) == 0 || len(s.Functions) == 0) {
				t.Errorf("samples of the %s: %+v", name, s)
			}
		}
	}
	want := []string{report.Variant(report.Fairlead, "runc", report.CNI), report.Variant(report.Fairlead, "crun", report.Builtin)}
	if !slices.Equal(of, want) {
		t.Errorf("profiles of %q, want %q", of, want)
	}
}

// The sizes in the page are those that were asked for.
func TestImagesHaveTheirSize(t *testing.T) {
	const size = 2_000_000
	var raw, packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files(rand.New(rand.NewPCG(1, 2)), 0, size) {
		raw.Write(f.Body)
	}
	if _, err := w.Write(raw.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := packed.Len(); n < size*9/10 || n > size*11/10 {
		t.Errorf("compressed to %d bytes of %d, want about %d", n, raw.Len(), size)
	}
}

// What lacks parts must not replace a result that has them.
func TestOnlySomePartsAreNotWritten(t *testing.T) {
	all := strings.Join(parts, ",")
	for _, tt := range []struct {
		o    options
		want string
	}{
		{options{only: all, json: "x", page: "y"}, ""},
		{options{only: "serial"}, ""},
		{options{only: "serial", json: "x"}, "-only without parallel"},
		{options{only: "serial", page: "y"}, "-only without parallel"},
		{options{only: "serial,nonsense"}, "no such part"},
	} {
		err := tt.o.check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}

func TestStagesInLog(t *testing.T) {
	const log = `{"msg":"something else","stages":[{"stage":"x","ms":1}]}
not JSON
{"msg":"operation ended","verb":"run pod","stages":[{"stage":"begin","ms":1},{"stage":"attach","ms":4}]}
{"msg":"operation ended","verb":"run pod","stages":[{"stage":"begin","ms":3},{"stage":"attach","ms":8}]}
`
	got, err := stagesIn(log, "v")
	if err != nil {
		t.Fatal(err)
	}
	want := []report.Stage{{Variant: "v", Operation: "run pod", Stage: "begin", P50: 2, Count: 2}, {Variant: "v", Operation: "run pod", Stage: "attach", P50: 6, Count: 2}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := stagesIn("nothing", "v"); err == nil {
		t.Error("a log without operations is no trace")
	}
}

func TestWhatOthersSpendAtRestIsTakenOff(t *testing.T) {
	rest := spending{gauge.Spent{Machine: 30 * time.Millisecond, Daemon: 10 * time.Millisecond}, time.Second}
	s := spending{gauge.Spent{Machine: 200 * time.Millisecond, Daemon: 100 * time.Millisecond, Kernel: 1, Ticks: 4}, 3 * time.Second}
	want := report.Spent{Daemon: 10, Others: 4, InKernel: 0.25}
	if got := s.each(10, rest); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
