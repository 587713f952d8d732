package audit

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCodesAreDocumented wants the table in docs/fsck.md to say what Rules says,
// because people write scripts by it.
func TestCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/fsck.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, r := range Rules() {
		rows.WriteString(row(r))
	}
	if !strings.Contains(string(page), rows.String()) {
		t.Errorf("the table of docs/fsck.md is not this one:\n%s", rows.String())
	}
}

func row(r Rule) string {
	repair := r.Repair
	switch {
	case repair == "":
		repair = "(" + r.Advice + ")"
	case r.Advice != "":
		repair += " (or else: " + r.Advice + ")"
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", r.Code(), r.Means, repair)
}
