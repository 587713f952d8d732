package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead.run/test/e2e/results"
)

func TestRender(t *testing.T) {
	all := map[string]kept{
		"fairlead": {"A note.", results.List{
			{Name: "a passes", State: results.Passed},
			{Name: "b [x] fails", State: results.Failed},
			{Name: "c", State: results.Passed},
			{Name: "d", State: results.Passed},
			{Name: "e", State: results.Skipped, Why: "no GPU"},
		}},
		"containerd": {"A note.", results.List{
			{Name: "a passes", State: results.Skipped},
			{Name: "b [x] fails", State: results.Passed},
			{Name: "d", State: results.Passed},
		}},
		"fairlead-v2": {"Another.", results.List{{Name: "d", State: results.Passed}, {Name: "e", State: results.Passed}}},
	}
	why := map[string]causes{"a passes": {"containerd": "it lacks something"}}
	_, err := render(all, why)
	if err == nil || !strings.Contains(err.Error(), "b [x] fails") {
		t.Errorf("err = %v, want it to name the spec without a cause", err)
	}
	why["b [x] fails"] = causes{everywhere: "a|b"}
	text, err := render(all, why)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"not its end, is not here.\n\nA note.\n\nAnother.\n\n|",
		"| Fairlead | 5 | 3 | 1 | 1 |\n",
		"| Fairlead, cgroup v2 | 2 | 2 | 0 | 0 |\n",
		"| containerd 2.4.2 | 3 | 2 | 1 | 0 |\n",
		"| a passes | passed | - | skipped | it lacks something |\n",
		`| b \[x\] fails | failed | - | passed | a\|b |` + "\n",
		"| e | skipped | passed | - | no GPU |\n",
		"## Passed on all of them\n\n* d\n",
		"## Passed on Fairlead (not run on Fairlead, cgroup v2; containerd 2.4.2)\n\n* c\n",
	} {
		if !strings.Contains(strings.Replace(text, "or\nnot to its", "not its", 1), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	why["d"] = causes{everywhere: "it failed once"}
	if _, err := render(all, why); err == nil || !strings.Contains(err.Error(), "\neverywhere: d") {
		t.Errorf("err = %v, want it to name the spec whose cause is out of date", err)
	}
	if _, err := render(nil, nil); err == nil {
		t.Error("a page was made of nothing")
	}
}

// A cause holds where it says, and one that explains nothing has to go.
func TestCauses(t *testing.T) {
	all := map[string]kept{}
	for name, state := range map[string]results.State{"fairlead": results.Failed, "fairlead-node": results.Failed, "containerd": results.Passed} {
		all[name] = kept{Specs: results.List{{Name: "x", State: state, Why: "expected true"}}}
	}
	there := []string{"fairlead", "fairlead-node", "containerd"}
	for _, c := range []struct {
		name     string
		causes   causes
		told     string
		without  []string
		needless []string
	}{
		{name: "none", without: []string{"Fairlead: x", "fairlead node: x"}},
		{name: "of one node", causes: causes{"fairlead-node": "A."}, told: "A.", without: []string{"Fairlead: x"}},
		{name: "of all", causes: causes{everywhere: "A."}, told: "A."},
		{name: "of all, and of one", causes: causes{everywhere: "A.", "fairlead-node": "B."}, told: "Fairlead: A. fairlead node: B."},
		{name: "where it passed", causes: causes{everywhere: "A.", "containerd": "B."}, told: "A.", needless: []string{"containerd: x"}},
		{name: "of a node that is not there", causes: causes{everywhere: "A.", "cri-o": "B."}, told: "A.", needless: []string{"cri-o: x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			told, without, needless := c.causes.of(all, there, "x")
			if told != c.told || !slices.Equal(without, c.without) || !slices.Equal(needless, c.needless) {
				t.Errorf("told %q, without %q, needless %q", told, without, needless)
			}
		})
	}
}

// What is not named stays as it was, and what is named takes the place of the same.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	causes, to := filepath.Join(dir, "causes.json"), paths{filepath.Join(dir, "page.md"), filepath.Join(dir, "kept.json")}
	if err := os.WriteFile(causes, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		node, note string
		specs      results.List
	}{
		{"fairlead", "old", results.List{{Name: "a", State: results.Passed}, {Name: "b", State: results.Passed}}},
		{"fairlead-v2", "guest", results.List{{Name: "b", State: results.Skipped, Why: "no GPU", Seconds: 1}}},
		{"fairlead", "new", results.List{{Name: "a", State: results.Passed}}},
	} {
		file := filepath.Join(dir, r.node, "specs.json")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := r.specs.Write(file); err != nil {
			t.Fatal(err)
		}
		if err := run(causes, to, r.note, []string{file}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readKept(to.kept)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]kept{
		"fairlead":    {"new", results.List{{Name: "a", State: results.Passed}}},
		"fairlead-v2": {"guest", results.List{{Name: "b", State: results.Skipped, Why: "no GPU"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if page, err := os.ReadFile(to.page); err != nil || !strings.Contains(string(page), "| b | - | skipped | no GPU |\n") {
		t.Errorf("the page is (%v):\n%s", err, page)
	}
	if err := run(causes, to, "", []string{filepath.Join(dir, "unknown", "specs.json")}); err == nil {
		t.Error("a page has results of an unknown node")
	}
}
