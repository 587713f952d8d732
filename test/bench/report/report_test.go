package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"fairlead.run/test/bench/load"
)

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{3}, 0.95, 3},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{5, 1, 4, 2, 3}, 0.5, 3},
		{[]float64{0, 10}, 0.95, 9.5},
		{[]float64{2, 1}, 0, 1},
		{[]float64{2, 1}, 1, 2},
	} {
		if got := Quantile(tt.values, tt.q); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("quantile %g of %v = %g, want %g", tt.q, tt.values, got, tt.want)
		}
	}
	if !math.IsNaN(Quantile(nil, 0.5)) {
		t.Error("nothing has a median")
	}
}

// result is one in which every promise is just kept, but for start, which is
// what a pod takes to start under Fairlead, and 100 under containerd.
func result(start float64) *Result {
	of := map[Key]float64{{load.PodStart, Serial, fairleadRunc}: 40}
	for _, b := range bar() {
		if b.base == (Key{}) {
			of[b.of] = b.limit
		} else if of[b.of] == 0 {
			of[b.of] = 1
		}
	}
	var c Collector
	seen := map[Key]bool{}
	add := func(k Key, v float64) {
		if !seen[k] {
			c.Add(k, "ms", v, v, v)
			c.Add(k, "ms", v*1.01)
		}
		seen[k] = true
	}
	for _, b := range bar() {
		if b.base != (Key{}) {
			add(b.base, of[b.of]/b.limit)
		}
	}
	of[Key{load.PodStart, Serial, fairleadRunc}] = start
	for _, b := range bar() {
		if base, ok := c.byKey[b.base]; ok && of[b.of] == 1 {
			of[b.of] = base.rounds[0] * b.limit
		}
		add(b.of, of[b.of])
	}
	for _, rpc := range rpcs {
		add(Key{rpc, Serial, containerdRunc}, 20)
		add(Key{rpc, Serial, fairleadRunc}, 10)
	}
	r := &Result{
		Version: Version, Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Series: c.Series(),
		Programs: map[string]string{"runc": "1.5.2"}, Machine: Machine{CPU: "a CPU", CPUs: 2},
		Trace: []Stage{{fairleadRunc, "run pod", "attach network", 25, 10}},
		Profile: []Profile{{
			Variant: fairleadRunc, Pods: 40, Start: Spent{8, 20, 2, 30, 1, 3, 0.6}, End: Spent{6, 21, 1, 0, 1, 4, 0.5},
			Daemon:  Samples{50, 0.5, []Part{{"calls", 0.25}, {"the rest", 0.75}}, []Part{{"lifecycle.(*Core).RunPod", 0.5}}},
			Monitor: Samples{20, 0.25, []Part{{"records", 0.5}}, []Part{{"monitor/inner.(*Inner).start", 1}}},
		}, {Variant: builtinCrun}},
	}
	return r
}

func TestPromises(t *testing.T) {
	for _, tt := range []struct {
		start float64
		kept  bool
	}{{40, true}, {41, false}} {
		promises := result(tt.start).Promises()
		if len(promises) != len(bar()) {
			t.Fatalf("%d promises, want %d", len(promises), len(bar()))
		}
		for _, p := range promises {
			want := tt.kept || p.What != "pod start, same runc, same conflist"
			if p.Kept != want {
				t.Errorf("with a pod start of %g, %q is kept: %t, want %t (%g, limit %g)", tt.start, p.What, p.Kept, want, p.Got, p.Limit)
			}
		}
	}
}

func TestPromisesThatWereNotMeasured(t *testing.T) {
	r := result(40)
	r.Series = r.Series[:1] // the daemon that it would be compared with is missing
	promises := r.Promises()
	if len(promises) != len(bar()) {
		t.Fatalf("%d promises, want %d", len(promises), len(bar()))
	}
	for _, p := range promises {
		if p.Measured || p.Kept || p.Verdict() != "not measured" {
			t.Errorf("%+v: want not measured", p)
		}
	}
	if text := r.Page("plot.svg"); !strings.Contains(text, "| pod start, same runc, same conflist | - | at most 0.40 | not measured |") {
		t.Errorf("the page does not say what was not measured:\n%s", text)
	}
}

func TestCompare(t *testing.T) {
	before, after := result(40), result(60)
	changes := Compare(before, after)
	if len(changes) != len(after.Series) {
		t.Fatalf("%d changes, want %d", len(changes), len(after.Series))
	}
	for i, c := range changes {
		is := c.Key == Key{load.PodStart, Serial, fairleadRunc}
		if c.Clear != is || is != (i == 0) {
			t.Errorf("change %d: %+v", i, c)
		}
	}
	if r := changes[0].Ratio(); math.Abs(r-1.5) > 1e-9 {
		t.Errorf("ratio %g, want 1.5", r)
	}
	var b strings.Builder
	if err := WriteChanges(&b, before, after); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of ", "MISSED", "1.50"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "machines differ") {
		t.Errorf("the machine is the same:\n%s", b.String())
	}
}

// Rounds that overlap are chance.
func TestCompareOverlappingRounds(t *testing.T) {
	k := Key{"m", "s", "v"}
	one := &Result{Series: []Series{{Key: k, P50: 10, Rounds: []float64{9, 14}}}}
	two := &Result{Series: []Series{{Key: k, P50: 13, Rounds: []float64{12, 15}}}}
	if c := Compare(one, two); c[0].Clear {
		t.Errorf("%+v is no clear change", c[0])
	}
}

// One round says nothing of chance, however far it is from the other run.
func TestCompareSingleRounds(t *testing.T) {
	k := Key{"m", "s", "v"}
	of := func(p50 float64, rounds ...float64) *Result {
		return &Result{Series: []Series{{Key: k, P50: p50, Rounds: rounds}}}
	}
	for _, tt := range []struct {
		name          string
		before, after *Result
		clear         bool
	}{
		{"one each", of(10, 10), of(30, 30), false},
		{"one before", of(10, 10), of(30, 29, 31), false},
		{"one after", of(10, 9, 11), of(30, 30), false},
		{"none", of(10), of(30), false},
		{"two each", of(10, 9, 11), of(30, 29, 31), true},
	} {
		if c := Compare(tt.before, tt.after); len(c) != 1 || c[0].Clear != tt.clear {
			t.Errorf("%s: %+v, want clear: %t", tt.name, c, tt.clear)
		}
	}
}

func TestReadIsWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	want := result(40)
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Series) != len(want.Series) || !got.Date.Equal(want.Date) || got.Trace[0] != want.Trace[0] || !reflect.DeepEqual(got.Profile, want.Profile) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.Version = 99
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a format of the future was read: %v", err)
	}
}

func TestPage(t *testing.T) {
	text := result(41).Page("plot.svg")
	for _, want := range []string{
		"| pod start, same runc, same conflist | 0.41 | at most 0.40 | MISSED |",
		"| memory per idle pod beside the workload | 0.10 | at most 0.10 MB | holds |",
		"| run pod | attach network | 25.0 |",
		"| 200 pods, fairlead, crun, built-in, until the first answer | 100 | 101 | 4 |",
		"| daemon | 8.00 | 6.00 | 0.00 | 0.00 |", "| all | 64.0 | 33.0 | 0.00 | 0.00 |", "| part of all that is spent in the kernel | 60% | 50% |",
		"### What the daemon does", "| fairlead, runc, bridge+portmap: 50 samples, 50% of them in the kernel | part | ms |", "| calls | 25% | 2.00 |",
		"| `lifecycle.(*Core).RunPod` | 50% | 4.00 |",
		"### What the monitor does", "| fairlead, runc, bridge+portmap: 20 samples, 25% of them in the kernel | part | ms |", "| records | 50% | 1.00 |",
		"| `monitor/inner.(*Inner).start` | 100% | 2.00 |", "the mean of 40 that start",
		"](plot.svg)", "## How it is measured", "| runc | 1.5.2 |", "### Serial",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "%!") || strings.Contains(text, "NaN") {
		t.Errorf("the page has a mistake of formatting in it:\n%s", text)
	}
}

// Where nothing could be sampled, the page says so and has the rest.
func TestPageWithoutSamples(t *testing.T) {
	r := result(40)
	r.Profile[0].Daemon, r.Profile[0].Monitor = Samples{}, Samples{}
	text := r.Page("p.svg")
	if strings.Count(text, "let nobody look") != 2 || strings.Contains(text, " samples, ") || !strings.Contains(text, "| daemon | 8.00 |") {
		t.Errorf("the page says:\n%s", text)
	}
}

// Only a page of a machine that did something else says so.
func TestPageWarnsOfLoad(t *testing.T) {
	for load, want := range map[float64]bool{1.0: false, 1.1: true} {
		r := result(40) // on two processors
		r.Machine.Load = load
		if got := strings.Contains(r.Page("p.svg"), "was not at rest"); got != want {
			t.Errorf("with a load of %g the page warns: %t, want %t", load, got, want)
		}
	}
}

func TestPlotIsXML(t *testing.T) {
	plot := result(40).Plot()
	d := xml.NewDecoder(strings.NewReader(plot))
	bars := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, plot)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if bars < 21 {
		t.Errorf("%d rectangles in the plot:\n%s", bars, plot)
	}
}

// The page of nodes has what was measured, and says what was not.
func TestNodePage(t *testing.T) {
	var c Collector
	for variant, ready := range map[string]float64{NodeFairlead: 150, NodeKubelet: 300} {
		c.Add(Key{Ready, OnePod, variant}, "ms", ready)
		c.Add(Key{Gone, OnePod, variant}, "ms", ready)
	}
	c.Add(Key{Ready, BesideHung(NodeHungPods), NodeFairlead}, "ms", 160)
	c.Add(Key{Resident, Idle(NodeMemoryPods), NodeFairlead}, "MB", 120)
	r := &Result{Version: Version, Machine: Machine{CPUs: 2}, Series: c.Series()}
	text := r.NodePage()
	for _, want := range []string{
		"| kubectl apply until Ready, one pod | 0.50 | at most 0.60 | holds |",
		"| kubectl apply of 100 pods until all are Ready | - | at most 0.50 | not measured |",
		"| what 10 pods that hang add to one pod until Ready | 10.0 | at most 100 ms | holds |",
		"| resident memory with 50 pods | 120 | at most 110 MB | MISSED |",
		"| | kubelet, containerd | fairlead node |", "| kubectl delete until gone | 300 | 150 |", "### One pod", "## How it is measured",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "%!") || strings.Contains(text, "NaN") {
		t.Errorf("the page has a mistake of formatting in it:\n%s", text)
	}
}
