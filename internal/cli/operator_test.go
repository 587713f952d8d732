package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// The program that the command becomes is given the flags that the command was given.
func TestOperatorPassesFlagsOn(t *testing.T) {
	cmd := (&app{}).operatorCommand()
	if err := cmd.ParseFlags([]string{"--namespace", "there", "--gardener", "--leader-elect=false"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"--gardener=true", "--leader-elect=false", "--namespace=there"}
	if got := givenFlags(cmd); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestOperatorCommandLine(t *testing.T) {
	t.Setenv("PATH", "")
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"an argument": {[]string{"here"}, exitUsage, "here"},
		"a flag":      {[]string{"--here"}, exitUsage, "--here"},
		"an address":  {[]string{"--health", "here"}, exitUsage, "--health"},
		"a namespace": {[]string{"--namespace", "N"}, exitUsage, "--namespace"},
		"log level":   {[]string{"--log-level", "loud"}, exitUsage, "--log-level"},
		"no program":  {nil, exitFailure, "fairlead-operator"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			a := &app{version: "test", in: &bytes.Buffer{}, out: &bytes.Buffer{}, err: &errs}
			if code := a.run(t.Context(), append([]string{"operator"}, test.args...)); code != test.code || !strings.Contains(errs.String(), test.says) {
				t.Errorf("code %d: %s", code, errs.String())
			}
		})
	}
}
