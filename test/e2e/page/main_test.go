package main

import (
	"strings"
	"testing"

	"fairlead.run/test/e2e/results"
)

func TestRender(t *testing.T) {
	ours := results.List{
		{Name: "a passes", State: results.Passed},
		{Name: "b [x] fails", State: results.Failed},
		{Name: "c", State: results.Passed},
		{Name: "d", State: results.Passed},
		{Name: "e", State: results.Skipped, Why: "no GPU"},
	}
	theirs := results.List{
		{Name: "a passes", State: results.Skipped},
		{Name: "b [x] fails", State: results.Passed},
		{Name: "d", State: results.Passed},
	}
	causes := map[string]string{"a passes": "it lacks something"}
	_, err := render(ours, theirs, causes, "")
	if err == nil || !strings.Contains(err.Error(), "b [x] fails") {
		t.Errorf("err = %v, want it to name the spec without a cause", err)
	}
	causes["b [x] fails"] = "a|b"
	text, err := render(ours, theirs, causes, "A note.")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Fairlead | 5 | 3 | 1 | 1 |\n",
		"| containerd 2.4.2 | 3 | 2 | 1 | 0 |\n",
		"| a passes | passed | skipped | it lacks something |\n",
		`| b \[x\] fails | failed | passed | a\|b |` + "\n",
		"| e | skipped | - | no GPU |\n",
		"## Passed on both\n\n* d\n",
		"## Passed on one, not run on the other (-)\n\n* c (Fairlead: passed, containerd: -)\n",
		"A note.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	causes["d"] = "it failed once"
	if _, err := render(ours, theirs, causes, ""); err == nil || !strings.Contains(err.Error(), "\nd") {
		t.Errorf("err = %v, want it to name the spec whose cause is out of date", err)
	}
	// One list alone says nothing of the other runtime.
	if text, err = render(ours[:1], nil, nil, ""); err != nil || strings.Contains(text, "| containerd 2.4.2 |") {
		t.Errorf("err = %v\n%s", err, text)
	}
}
