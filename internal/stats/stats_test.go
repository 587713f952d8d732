package stats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

const psi = `some avg10=1.50 avg60=0.25 avg300=0.00 total=1234567
full avg10=0.75 avg60=0.00 avg300=0.00 total=1000
`

// version2 is a host with cgroup v2 and one container, as the kernel shows it.
var version2 = map[string]string{
	"cgroup.controllers":          "cpu memory pids\n",
	"cpu.pressure":                psi,
	"pods/a/cpu.stat":             "usage_usec 2000\nuser_usec 1500\nsystem_usec 500\n",
	"pods/a/cpu.pressure":         psi,
	"pods/a/memory.current":       "1000000\n",
	"pods/a/memory.stat":          "anon 400000\nfile 500000\nactive_file 1\ninactive_file 300000\npgfault 1100\npgmajfault 100\n",
	"pods/a/memory.max":           "2000000\n",
	"pods/a/memory.pressure":      psi,
	"pods/a/memory.swap.current":  "5000\n",
	"pods/a/memory.swap.max":      "20000\n",
	"pods/a/io.pressure":          psi,
	"pods/a/pids.current":         "7\n",
	"pods/a/memory.events":        "oom_kill 0\n",
	"pods/a/cgroup.subtree_contr": "",
}

// version1 has the same container; its kernel counts pressure beside v1.
var version1 = map[string]string{
	"cpuacct/pods/a/cpuacct.usage":              "2000000\n",
	"memory/pods/a/memory.usage_in_bytes":       "1000000\n",
	"memory/pods/a/memory.limit_in_bytes":       "2000000\n",
	"memory/pods/a/memory.memsw.usage_in_bytes": "1005000\n",
	"memory/pods/a/memory.memsw.limit_in_bytes": "2020000\n",
	"memory/pods/a/memory.stat": "rss 1\ninactive_file 2\npgfault 3\n" +
		"total_rss 400000\ntotal_inactive_file 300000\ntotal_pgfault 1100\ntotal_pgmajfault 100\n",
	"pids/pods/a/pids.current":           "7\n",
	"unified/cpu.pressure":               psi,
	"unified/pods/a/cpu.pressure":        psi,
	"unified/pods/a/memory.pressure":     psi,
	"unified/pods/a/io.pressure":         psi,
	"unified/pods/a/cgroup.procs":        "",
	"systemd/pods/a/cgroup.procs":        "",
	"memory/pods/a/memory.numa_stat":     "",
	"memory/pods/a/memory.failcnt":       "0\n",
	"memory/pods/a/memory.max_usage_in_": "0\n",
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// host is a meter on files, without those that end with one of the suffixes.
func host(t *testing.T, files map[string]string, without ...string) (m *Meter, root string) {
	t.Helper()
	root = t.TempDir()
	files = maps.Clone(files)
	for name := range files {
		for _, w := range without {
			if strings.HasSuffix(name, w) {
				delete(files, name)
			}
		}
	}
	write(t, root, files)
	m, err := New(Config{
		Cgroups:         root,
		PodCgroup:       func(*pod.Record) (string, error) { return "/pods", nil },
		ContainerCgroup: func(_ *pod.Record, id pod.ContainerID) (string, error) { return "/pods/" + string(id), nil },
		Layer: func(_ context.Context, id pod.ContainerID) (int64, int64, error) {
			return 0, 0, fmt.Errorf("layer of %s: %w", id, errdefs.ErrNotFound)
		},
		Interfaces: func(string) ([]pod.InterfaceUsage, error) { return nil, errors.New("no network here") },
		Groups:     config.MetricGroups(),
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m, root
}

func p(n uint64) *uint64 { return &n }

// wanted is what both hosts have of the container.
func wanted() pod.ContainerUsage {
	pressure := &pod.Pressure{
		Some: &pod.Stall{Total: 1234567 * time.Microsecond, Avg10: 1.5, Avg60: 0.25},
		Full: &pod.Stall{Total: time.Millisecond, Avg10: 0.75},
	}
	return pod.ContainerUsage{
		CPU: &pod.CPUUsage{Total: p(2_000_000), Pressure: pressure},
		Memory: &pod.MemoryUsage{
			Total: p(1_000_000), WorkingSet: p(700_000), Available: p(1_300_000), RSS: p(400_000),
			MinorFaults: p(1000), MajorFaults: p(100), Pressure: pressure,
		},
		Swap: &pod.SwapUsage{Total: p(5000), Available: p(15_000)},
		IO:   &pod.IOUsage{Pressure: pressure},
	}
}

var noTimes = cmpopts.IgnoreTypes(time.Time{})

func measure(t *testing.T, m *Meter) pod.ContainerUsage {
	t.Helper()
	before := time.Now()
	u, err := m.Container(&pod.Record{}, &pod.Container{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU != nil && u.CPU.At.Before(before) || u.Memory != nil && u.Memory.At.Before(before) {
		t.Errorf("measured at %v and %v, before it was asked", u.CPU.At, u.Memory.At)
	}
	return u
}

func TestContainer(t *testing.T) {
	for name, files := range map[string]map[string]string{"v1": version1, "v2": version2} {
		t.Run(name, func(t *testing.T) {
			m, _ := host(t, files)
			if diff := cmp.Diff(wanted(), measure(t, m), noTimes); diff != "" {
				t.Error(diff)
			}
			seen, err := m.cgroups.look("/pods/a")
			if err != nil || seen.processes == nil || seen.processes.Count != 7 {
				t.Errorf("processes: %+v %v", seen.processes, err)
			}
		})
	}
}

// What cannot be read is nil, and the rest is there.
func TestPartsThatAreMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		files   map[string]string
		without []string
		change  func(*pod.ContainerUsage)
	}{
		"v2 without pressure": {version2, []string{".pressure"}, noPressure},
		"v1 without pressure": {version1, []string{".pressure"}, noPressure},
		"v1 with a container that v2 has not": {
			version1,
			[]string{"a/cpu.pressure", "a/memory.pressure", "a/io.pressure"},
			noPressure,
		},
		"v2 without swap":   {version2, []string{"swap.current", "swap.max"}, func(u *pod.ContainerUsage) { u.Swap = nil }},
		"v1 without swap":   {version1, []string{"memsw.usage_in_bytes"}, func(u *pod.ContainerUsage) { u.Swap = nil }},
		"v1 without memory": {version1, []string{"usage_in_bytes"}, func(u *pod.ContainerUsage) { u.Memory, u.Swap = nil, nil }},
		"v2 without memory": {version2, []string{"memory.current"}, func(u *pod.ContainerUsage) { u.Memory, u.Swap = nil, nil }},
		"v2 without time":   {version2, []string{"cpu.stat"}, func(u *pod.ContainerUsage) { u.CPU = nil }},
		"v1 without details": {version1, []string{"memory.stat"}, func(u *pod.ContainerUsage) {
			u.Memory.WorkingSet, u.Memory.Available, u.Memory.RSS, u.Memory.MinorFaults, u.Memory.MajorFaults = nil, nil, nil, nil, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := host(t, tt.files, tt.without...)
			want := wanted()
			tt.change(&want)
			if diff := cmp.Diff(want, measure(t, m), noTimes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func noPressure(u *pod.ContainerUsage) { u.CPU.Pressure, u.Memory.Pressure, u.IO = nil, nil, nil }

func TestNoLimit(t *testing.T) {
	m1, root1 := host(t, version1)
	write(t, root1, map[string]string{
		"memory/pods/a/memory.limit_in_bytes":       "9223372036854771712\n",
		"memory/pods/a/memory.memsw.limit_in_bytes": "9223372036854771712\n",
	})
	m2, root2 := host(t, version2)
	write(t, root2, map[string]string{"pods/a/memory.max": "max\n", "pods/a/memory.swap.max": "max\n"})
	for name, m := range map[string]*Meter{"v1": m1, "v2": m2} {
		want := wanted()
		want.Memory.Available, want.Swap.Available = nil, nil
		if diff := cmp.Diff(want, measure(t, m), noTimes); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The counts are not read at one moment.
func TestNothingIsBelowZero(t *testing.T) {
	m, root := host(t, version2)
	write(t, root, map[string]string{"pods/a/memory.current": "1000\n", "pods/a/memory.max": "0\n"})
	u := measure(t, m)
	if *u.Memory.WorkingSet != 0 || *u.Memory.Available != 0 {
		t.Errorf("working set %d, available %d", *u.Memory.WorkingSet, *u.Memory.Available)
	}
}

// crun limits a cgroup of its own below the scope that systemd makes.
func TestLimitBelowAScope(t *testing.T) {
	root := t.TempDir()
	files := map[string]string{"cgroup.controllers": "", "s.slice/a.scope/container/memory.max": "1500000\n", "s.slice/a.scope/container/memory.swap.max": "max"}
	for name, text := range version2 {
		if base, ok := strings.CutPrefix(name, "pods/a/"); ok && !strings.HasSuffix(name, ".max") {
			files["s.slice/a.scope/"+base] = text
		}
	}
	files["s.slice/a.scope/memory.max"] = "max\n"
	write(t, root, files)
	c := findCgroups(root, true)
	seen, err := c.look("/s.slice/a.scope")
	if err != nil || seen.memory == nil || seen.memory.Available == nil || *seen.memory.Available != 800_000 {
		t.Errorf("%+v %v", seen.memory, err)
	}
}

func TestEnded(t *testing.T) {
	for name, files := range map[string]map[string]string{"v1": version1, "v2": version2} {
		m, _ := host(t, files)
		if _, err := m.Container(&pod.Record{}, &pod.Container{ID: "gone"}); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPod(t *testing.T) {
	files := map[string]string{}
	for name, text := range version2 {
		files[strings.Replace(name, "pods/a/", "pods/", 1)] = text
	}
	m, root := host(t, files)
	r := &pod.Record{ID: "pod", Sandbox: pod.Sandbox{NetNS: "/netns"}}
	links := []pod.InterfaceUsage{{Name: "eth0", Default: true, RxBytes: 5}}
	m.cfg.Interfaces = func(ns string) ([]pod.InterfaceUsage, error) {
		if ns != "/netns" {
			return nil, errors.New("asked about " + ns)
		}
		return links, nil
	}
	u, err := m.Pod(r)
	w := wanted()
	want := pod.Usage{CPU: w.CPU, Memory: w.Memory, IO: w.IO, Processes: &pod.ProcessUsage{Count: 7}, Network: &pod.NetworkUsage{Interfaces: links}}
	if diff := cmp.Diff(want, u, noTimes); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if u, err := m.Pod(&pod.Record{ID: "host"}); err != nil || u.Network != nil {
		t.Errorf("on the node's network: %+v %v", u.Network, err)
	}
	// A pod without containers may have no cgroup yet; one that has no network
	// any more was stopped.
	if err := os.RemoveAll(filepath.Join(root, "pods")); err != nil {
		t.Fatal(err)
	}
	if u, err := m.Pod(r); err != nil || u.CPU != nil || u.Network == nil {
		t.Errorf("without a cgroup: %+v %v", u, err)
	}
	m.cfg.Interfaces = func(string) ([]pod.InterfaceUsage, error) { return nil, errdefs.ErrNotFound }
	if _, err := m.Pod(r); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("stopped: %v", err)
	}
}

func TestRates(t *testing.T) {
	var r rates
	at := time.Unix(1000, 0)
	rate := func(after time.Duration, total uint64) any {
		u := &pod.CPUUsage{At: at.Add(after), Total: &total}
		r.add("a", u)
		if u.Rate == nil {
			return nil
		}
		return *u.Rate
	}
	for i, tt := range []struct {
		after time.Duration
		total uint64
		want  any
	}{
		{0, 5e9, nil},
		{10 * time.Millisecond, 6e9, nil},                        // too early to tell
		{2 * time.Second, 8e9, uint64(15e8)},                     // since the first
		{2*time.Second + time.Millisecond, 9e9, uint64(15e8)},    // too early: as before
		{4 * time.Second, 9e9, uint64(5e8)},                      // since the third
		{5 * time.Second, 1e9, nil},                              // another cgroup of that name
		{6 * time.Second, 1e9, uint64(0)},                        // idle is zero, not nil
		{100 * 24 * time.Hour, 1e9 + 1e18, uint64(115741637753)}, // no overflow
	} {
		got := rate(tt.after, tt.total)
		if w, ok := tt.want.(uint64); ok {
			if g, ok := got.(uint64); !ok || max(g, w)-min(g, w) > w/1000 {
				t.Errorf("%d: got %v, want %d", i, got, w)
			}
		} else if got != tt.want {
			t.Errorf("%d: got %v, want %v", i, got, tt.want)
		}
	}
	other := &pod.CPUUsage{At: at.Add(time.Hour), Total: p(1)}
	if r.add("b", other); other.Rate != nil {
		t.Error("one container has the rate of another")
	}
}

func TestForgets(t *testing.T) {
	var m memory[int]
	at := time.Unix(1000, 0)
	for i := range 10 * fewValues {
		at = at.Add(forgetAfter / fewValues)
		m.with(fmt.Sprint(i), at, func(*int) {})
		m.with("asked for", at, func(v *int) { *v++ })
		if len(m.all) > 2*fewValues+2 {
			t.Fatalf("%d values are kept", len(m.all))
		}
	}
	m.with("asked for", at, func(v *int) {
		if *v != 10*fewValues {
			t.Errorf("what was asked for all the time was forgotten: %d", *v)
		}
	})
}
