package rules

import (
	"regexp"
	"strings"
	"testing"
)

var (
	requirement = regexp.MustCompile(`(?m)^\t(?:require )?(\S+\.\S+) v\S+`)
	tableRow    = regexp.MustCompile(`(?m)^\| (\S[^|]*) \|`)
)

// moduleOf is the required module that a package belongs to, or "".
func moduleOf(pkg string, modules []string) string {
	best := ""
	for _, m := range modules {
		if in(pkg, m) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// explained reads the first cells of the table: "host/org/a, b" is two modules.
func explained(page string) map[string]bool {
	out := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(page, -1) {
		dir := ""
		for name := range strings.SplitSeq(row[1], ", ") {
			if strings.Contains(strings.SplitN(name, "/", 2)[0], ".") {
				dir = name[:strings.LastIndex(name, "/")+1]
				out[name] = true
				continue
			}
			out[dir+name] = true
		}
	}
	return out
}

func TestExplainedReadsTheTable(t *testing.T) {
	got := explained("| module | for |\n| --- | --- |\n| example.org/x/one, two, other.io/y/v3 | a, b |\n")
	for _, want := range []string{"example.org/x/one", "example.org/x/two", "other.io/y/v3"} {
		if !got[want] {
			t.Errorf("%s is missing in %v", want, got)
		}
	}
	if got["example.org/x/a"] || got["b"] {
		t.Errorf("read a second cell: %v", got)
	}
}

// A dependency is a decision, and decisions are written down.
func TestDependenciesAreExplained(t *testing.T) {
	var modules []string
	for _, m := range requirement.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		modules = append(modules, m[1])
	}
	if len(modules) < 10 {
		t.Fatalf("found %d requirements, so the test does not understand go.mod", len(modules))
	}
	page := explained(read(t, "docs/design/0001-decisions.md"))
	missing := map[string]string{}
	for _, f := range load(t).files {
		for _, spec := range f.ast.Imports {
			m := moduleOf(text(spec.Path), modules)
			if m != "" && !page[m] && missing[m] == "" {
				missing[m] = f.path
			}
		}
	}
	for m, where := range missing {
		t.Errorf("%s imports %s, which docs/design/0001-decisions.md does not explain", where, m)
	}
}
