package main

import (
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
