package cli

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"fairlead.run/internal/node/inventory"
	"fairlead.run/internal/node/logs"
)

func TestLogOptions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		flags logFlags
		want  logs.Options
	}{
		"none":                {logFlags{tail: -1}, logs.Options{Tail: -1, Rotated: true}},
		"tail":                {logFlags{tail: 0, follow: true}, logs.Options{Follow: true, Rotated: true}},
		"since":               {logFlags{since: time.Minute}, logs.Options{Since: now.Add(-time.Minute), Rotated: true}},
		"since time":          {logFlags{sinceTime: "2026-01-02T01:00:00Z"}, logs.Options{Since: now.Truncate(24 * time.Hour).Add(time.Hour), Rotated: true}},
		"what is not written": {logFlags{follow: true, previous: true}, logs.Options{Rotated: true}},
	} {
		got, err := tt.flags.options(now)
		if err != nil || got.Tail != tt.want.Tail || got.Follow != tt.want.Follow || got.Rotated != tt.want.Rotated || !got.Since.Equal(tt.want.Since) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, f := range map[string]logFlags{
		"a number below":    {tail: -2},
		"the future":        {since: -time.Second},
		"twice":             {since: time.Second, sinceTime: "2026-01-02T01:00:00Z"},
		"no time":           {sinceTime: "yesterday"},
		"all and one of it": {all: true, container: "main"},
	} {
		if _, err := f.options(now); !errors.As(err, new(usageError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLogNames(t *testing.T) {
	web, db := &inventory.Pod{ID: "1", Namespace: "default", Name: "web"}, &inventory.Pod{ID: "2", Namespace: "lab", Name: "db"}
	of := func(p *inventory.Pod, name string) outlet {
		return outlet{pod: p, Container: inventory.Container{Name: name}}
	}
	one, both, pods := []outlet{of(web, "main")}, []outlet{of(web, "main"), of(web, "helper")}, []outlet{of(web, "main"), of(db, "main")}
	for name, tt := range map[string]struct {
		flags logFlags
		list  []outlet
		want  []string
	}{
		"one":                 {logFlags{}, one, []string{""}},
		"several":             {logFlags{}, both, []string{"main   | ", "helper | "}},
		"several pods":        {logFlags{}, pods, []string{"web main    | ", "lab/db main | "}},
		"prefix":              {logFlags{prefix: true, named: true}, one, []string{"[pod/web/main] "}},
		"prefix of pods":      {logFlags{prefix: true, named: true}, pods, []string{"[pod/web/main] ", "[pod/db/main] "}},
		"without prefix":      {logFlags{named: true}, both, []string{"", ""}},
		"pods without prefix": {logFlags{named: true}, pods, []string{"", ""}},
	} {
		list := slices.Clone(tt.list)
		tt.flags.name(list)
		var got []string
		for _, l := range list {
			got = append(got, l.before)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestLogLines(t *testing.T) {
	var out, errs bytes.Buffer
	w := &logWriter{out: &out, err: &errs, stamps: true}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, l := range []logs.Line{{Time: at, Stream: "stdout", Text: []byte("a")}, {Time: at, Stream: "stderr", Text: []byte("b")}} {
		if err := w.line("main | ", l); err != nil {
			t.Error(err)
		}
	}
	if out.String() != "main | 2026-01-02T03:04:05.000000006Z a\n" || errs.String() != "main | 2026-01-02T03:04:05.000000006Z b\n" {
		t.Errorf("%q, %q", out.String(), errs.String())
	}
}
