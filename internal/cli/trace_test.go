package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	adminv1 "fairlead.run/api/admin/v1"
)

func TestTraceRows(t *testing.T) {
	got := traceRows([]adminv1.Past{
		{Verb: "run", Kind: "pod", Name: "default/web", MS: 8, Stages: []adminv1.Stage{{Name: "attach network", MS: 6}, {Name: "commit", MS: 2}}},
		{Verb: "start", Kind: "container", Name: "default/web/main", Error: "no such program"},
	})
	want := [][]string{
		{"OPERATION", "OBJECT", "STAGE", "MS", "SHARE", "RESULT"},
		{"run pod", "default/web", "all", "8.00", "", "done"},
		{"", "", "attach network", "6.00", "75%", ""},
		{"", "", "commit", "2.00", "25%", ""},
		{"start container", "default/web/main", "all", "0.00", "", "no such program"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
