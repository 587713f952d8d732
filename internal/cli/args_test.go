package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"logs", "POD is missing: want fairlead logs {POD | TYPE/NAME | -l SELECTOR};"},
		{"logs a b", `argument "b" is one too many: want fairlead logs {POD | TYPE/NAME | -l SELECTOR};`},
		{"exec web", "COMMAND is missing: want fairlead exec {POD | TYPE/NAME} -- COMMAND"},
		{"exec web ls -t", "goes behind --, with all its flags, as in fairlead exec web -- ls\n"},
		{"exec web sh -c date", "goes behind --, with all its flags, as in fairlead exec web -- sh\n"},
		{"exec web ls -l", "'l' in -l; flags of the command that is to run go behind --: fairlead exec {POD | TYPE/NAME} -- COMMAND"},
		{"image pull", "IMAGE is missing: want fairlead image pull IMAGE...;"},
		{"image pul", `fairlead image has no command "pul"; did you mean pull?`},
		{"ps x", `argument "x" is one too many: want fairlead ps;`},
		{"runtim", `fairlead has no command "runtim"; did you mean runtime?`},
		{"bogus", `fairlead has no command "bogus"; see fairlead --help`},
	} {
		var stderr bytes.Buffer
		a := &app{version: "test", in: strings.NewReader(""), out: &bytes.Buffer{}, err: &stderr}
		if code := a.run(t.Context(), strings.Fields(tt.line)); code != exitUsage || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("fairlead %s: exit code %d and %q, want %d and %q", tt.line, code, stderr.String(), exitUsage, tt.want)
		}
	}
}
