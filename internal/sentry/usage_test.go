package sentry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
)

// files answers what a sandbox does that has these files, by container and name.
func files(has map[string]string) func(string, json.RawMessage) string {
	return func(method string, arg json.RawMessage) string {
		var args struct {
			Args []struct {
				File struct{ Controller, Path, Name string }
			}
		}
		if method != "Cgroups.ReadControlFiles" || json.Unmarshal(arg, &args) != nil {
			return `{"success":false,"err":"wrong request"}`
		}
		var results []string
		for _, a := range args.Args {
			text, ok := has[a.File.Controller+" "+a.File.Path+"/"+a.File.Name]
			if !ok {
				text = "no such control file"
			}
			results = append(results, fmt.Sprintf(`{"value":%q,"is_error":%v}`, text, !ok))
		}
		return `{"success":true,"result":{"results":[` + strings.Join(results, ",") + `]}}`
	}
}

func TestMeasure(t *testing.T) {
	_, socket := sandbox(t, files(map[string]string{
		"cpuacct /one/cpuacct.usage":        "3000",
		"cpuacct /one/cpuacct.usage_user":   "2000",
		"cpuacct /one/cpuacct.usage_sys":    "1000",
		"memory /one/memory.usage_in_bytes": "4096",
		"pids /one/pids.current":            "2",
		"cpu /two/cpu.stat":                 "usage_usec 5\nuser_usec 4\nsystem_usec 1\nnr_periods 0",
		"memory /two/memory.current":        "what is this",
	}))
	got, err := Measure(context.Background(), socket, []string{"one", "two", "three"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"CPU":3000,"User":2000,"System":1000,"Memory":4096,"Threads":2},` +
		`{"CPU":5000,"User":4000,"System":1000,"Memory":null,"Threads":null},` +
		`{"CPU":null,"User":null,"System":null,"Memory":null,"Threads":null}]`
	if string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}

func TestMeasureOfABadSandbox(t *testing.T) {
	for name, answer := range map[string]string{
		"too few answers": `{"success":true,"result":{"results":[]}}`,
		"garbage":         "\x00\x01",
		"another type":    `{"success":true,"result":7}`,
		"too long":        `{"success":true,"err":"` + strings.Repeat("x", maxAnswer) + `"}`,
	} {
		_, socket := sandbox(t, func(string, json.RawMessage) string { return answer })
		if got, err := Measure(context.Background(), socket, []string{"one"}); !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestMeasureOfASandboxThatHangs(t *testing.T) {
	block := make(chan struct{})
	_, socket := sandbox(t, func(string, json.RawMessage) string { <-block; return "" })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := Measure(ctx, socket, []string{"one"})
	close(block)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
