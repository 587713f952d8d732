package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/report"
)

// A limit that is missed makes the run fail, and is named; what was not measured
// and short runs do not.
func TestMissedLimitFails(t *testing.T) {
	r := &report.Result{Version: report.Version}
	if err := missed(r); err != nil {
		t.Errorf("nothing was measured, and it says: %v", err)
	}
	series := func(variant string, p50 float64) report.Series {
		return report.Series{Key: report.Key{Metric: load.PodStart, Scenario: report.Serial, Variant: variant}, Unit: "ms", P50: p50}
	}
	ours, theirs := report.Variant(report.Fairlead, "runc", report.CNI), report.Variant(report.Containerd, "runc", report.CNI)
	r.Series = []report.Series{series(ours, 39), series(theirs, 100)}
	if err := missed(r); err != nil {
		t.Errorf("the limit is kept, and it says: %v", err)
	}
	r.Series[0].P50 = 41
	if err := missed(r); err == nil || !strings.Contains(err.Error(), "1 of the limits are missed: pod start, same runc, same conflist;") {
		t.Errorf("a limit is missed, and it says: %v", err)
	}
	r.Short = true
	if err := missed(r); err != nil {
		t.Errorf("a short run says: %v", err)
	}
}

// The one limit that no server could keep is shown as missed, and fails nothing.
func TestExceptedLimitDoesNotFail(t *testing.T) {
	r := &report.Result{Version: report.Version}
	series := func(call string, p50 float64) report.Series {
		return report.Series{
			Key:  report.Key{Metric: call, Scenario: report.Crowd(500), Variant: report.Variant(report.Fairlead, "runc", report.CNI)},
			Unit: "ms", P50: p50,
		}
	}
	r.Series = []report.Series{series(load.ListMetrics, 30), series(load.ListContainers, 5)}
	if err := missed(r); err != nil {
		t.Error(err)
	}
	if page := r.Page("p.svg"); !strings.Contains(page, "| ListPodSandboxMetrics with 500 containers | 30.0 | at most 5.00 ms | missed, as [") {
		t.Errorf("the page does not say that it is missed:\n%s", page)
	}
	r.Series[1].P50 = 5.1
	if err := missed(r); err == nil || !strings.Contains(err.Error(), "1 of the limits are missed: ListContainers with 500 containers;") {
		t.Errorf("a list is too slow, and it says: %v", err)
	}
}

// A page is written anew from its numbers, without measuring.
func TestRedo(t *testing.T) {
	dir := t.TempDir()
	o := options{json: filepath.Join(dir, "r.json"), page: filepath.Join(dir, "p.md")}
	if err := redo(o); err == nil {
		t.Error("a page of nothing")
	}
	r := &report.Result{Version: report.Version, Took: "24m18s"}
	if err := r.Write(o.json); err != nil {
		t.Fatal(err)
	}
	if err := redo(o); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(o.page)
	if err != nil || string(page) != r.Page("p.svg") {
		t.Errorf("the page is\n%s\n%v", page, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "p.svg")); err != nil {
		t.Error(err)
	}
	if err := redo(options{json: o.json}); err == nil {
		t.Error("written nowhere")
	}
}

// Who compares without a result is told how to get one.
func TestCompareWithoutResult(t *testing.T) {
	dir := t.TempDir()
	before, after := filepath.Join(dir, "last.json"), filepath.Join(dir, "now.json")
	if err := compare([]string{before, after}); err == nil || !strings.Contains(err.Error(), "run it before the change and after it") {
		t.Errorf("without a result from before: %v", err)
	}
	if err := (&report.Result{Version: report.Version}).Write(before); err != nil {
		t.Fatal(err)
	}
	if err := compare([]string{before, after}); err == nil || !strings.Contains(err.Error(), `run "make bench" first`) {
		t.Errorf("without a new result: %v", err)
	}
}
