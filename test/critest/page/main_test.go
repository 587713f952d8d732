package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/test/critest/runs"
	"fairlead.run/test/e2e/results"
)

func twoRuns() []runs.Run {
	return []runs.Run{
		{Suite: "v1", Runtime: runs.Fairlead, Handler: "crun", Cgroup: "v2", Kernel: "6.12.117+x", Programs: []string{"fairlead 1", "crun 2"}, Specs: results.List{
			{Name: "a", State: results.Passed}, {Name: "b [x]", State: results.Skipped}, {Name: "c", State: results.Failed},
		}},
		{Suite: "v1", Runtime: runs.Containerd, Handler: "crun", Cgroup: "v2", NRITimeout: "5s", Specs: results.List{
			{Name: "a", State: results.Failed}, {Name: "b [x]", State: results.Passed}, {Name: "c", State: results.Failed},
		}},
	}
}

func TestRender(t *testing.T) {
	text, err := render(twoRuns(), runs.Causes{"a": {"containerd": "because"}, "b [x]": {"": "why not"}, "c": {"fairlead": "the image", "containerd": "the time"}}, "a note")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a note", "| v1 | v2 | 6.12 | fairlead 1, crun 2 | 3 | 1 | 1 | 1 |", "NRI plugins may take 5s",
		"| a | failed: containerd crun v2 | because |", `| b \[x\] | skipped: fairlead crun v2 | why not |`,
		"| c | failed everywhere | the image the time |", "\n* a\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "* c") {
		t.Errorf("the page has c among those that passed:\n%s", text)
	}
}

func TestRenderNeedsCauses(t *testing.T) {
	_, err := render(twoRuns(), runs.Causes{"a": {"": "because"}, "b [x]": {"containerd": "why not"}, "c": {"": "the image"}}, "")
	if err == nil || !strings.Contains(err.Error(), "b [x]: skipped on fairlead crun v2") {
		t.Errorf("got %v, want an error that names b", err)
	}
}

// A page is written from the runs that it was written from before and from new
// ones, each of which takes the place of the one before it.
func TestRunsAreKept(t *testing.T) {
	dir := t.TempDir()
	to := paths{filepath.Join(dir, "p.md"), filepath.Join(dir, "p.json")}
	causes := filepath.Join(dir, "causes.json")
	if err := os.WriteFile(causes, []byte(`{"b [x]": {"": "why not"}, "a": {"": "because"}, "c": {"": "the image"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(causes, to, "", nil); err == nil {
		t.Error("a page of no runs")
	}
	both := twoRuns()
	files := []string{filepath.Join(dir, "1.json"), filepath.Join(dir, "2.json")}
	for i, r := range both {
		if err := r.Write(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	page := func(files ...string) string {
		t.Helper()
		if err := run(causes, to, "a note", files); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(to.page)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	whole := page(files...)
	if again := page(); again != whole {
		t.Errorf("without a new run the page is\n%s\nand was\n%s", again, whole)
	}
	both[0].Programs = []string{"fairlead 2", "crun 2"}
	if err := both[0].Write(files[0]); err != nil {
		t.Fatal(err)
	}
	if text := page(files[0]); text != strings.ReplaceAll(whole, "fairlead 1", "fairlead 2") {
		t.Errorf("after a new run the page is\n%s", text)
	}
}
