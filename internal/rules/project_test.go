package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var targetDoc = regexp.MustCompile(`(?m)^## ([a-z0-9-]+): \S.*\n\.PHONY: ([a-z0-9-]+)\n([a-z0-9-]+):`)

// targets is what the Makefile documents, and therefore what make help lists.
func targets(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range targetDoc.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		if m[1] != m[2] || m[1] != m[3] {
			t.Errorf("Makefile: the comment for %s, .PHONY: %s and the target %s do not belong together", m[1], m[2], m[3])
		}
		out = append(out, m[1])
	}
	return out
}

func TestMakeHasItsTargets(t *testing.T) {
	have := targets(t)
	for _, want := range []string{"build", "test", "lint", "generate", "verify", "demo", "help"} {
		if !slices.Contains(have, want) {
			t.Errorf("Makefile has no documented target %s; it has %v", want, have)
		}
	}
}

func TestCIRunsMakeTargetsOnly(t *testing.T) {
	allowed := regexp.MustCompile(`^(#.*|set -euo pipefail|cd .*|export .*|)$`)
	var ran []string
	for line := range strings.Lines(read(t, ".ci/run")) {
		line = strings.TrimSpace(line)
		if args, ok := strings.CutPrefix(line, "exec make "); ok {
			ran = append(ran, strings.Fields(args)...)
			continue
		}
		if !allowed.MatchString(line) {
			t.Errorf(".ci/run does something that is no make target: %s", line)
		}
	}
	if want := []string{"test", "verify", "e2e-short"}; !slices.Equal(ran, want) {
		t.Errorf(".ci/run makes %v, want %v", ran, want)
	}
	for _, target := range ran {
		if !slices.Contains(targets(t), target) {
			t.Errorf(".ci/run makes %s, which the Makefile does not document", target)
		}
	}
}

// A newcomer gets two commands, and both exist.
func TestReadmeStartsWithTwoCommands(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```[a-z]*\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d blocks of commands, want one", len(blocks))
	}
	var got []string
	for line := range strings.Lines(blocks[0][1]) {
		command, _, _ := strings.Cut(line, "#")
		got = append(got, strings.TrimSpace(command))
	}
	if want := []string{"make demo", "make test"}; !slices.Equal(got, want) {
		t.Fatalf("README.md tells a newcomer to run %q, want %q", got, want)
	}
}

var mdLink = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)

func TestDocumentationLinksLeadSomewhere(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	if len(pages) < 5 {
		t.Fatalf("found %d pages, so the test looks in the wrong place", len(pages))
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(data), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
			}
		}
	}
}

// The script that says whether generated files are fresh.
func TestFreshSeesWhatACommandChanged(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing")
	}
	script, err := filepath.Abs(filepath.Join(top, "build/fresh.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, command string
		fresh         bool
	}{
		{"nothing", "true", true},
		{"the same content again", "echo one > committed; echo three > edited", true},
		{"what git ignores", "echo x > ignored", true},
		{"a committed file", "echo two > committed", false},
		{"a file that was edited before", "echo four > edited", false},
		{"a file that is gone", "rm committed", false},
		{"a new file", "echo x > 'new file'", false},
		{"a failing command", "exit 3", false},
	} {
		dir := t.TempDir()
		setUp := exec.CommandContext(t.Context(), "bash", "-ec", `
			git init -q; echo ignored > .gitignore; echo one > committed; echo two > edited
			git add .; git -c user.name=x -c user.email=x@example.com commit -q -m x; echo three > edited`)
		setUp.Dir = dir
		if out, err := setUp.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", tt.name, err, out)
		}
		cmd := exec.CommandContext(t.Context(), script, "bash", "-c", tt.command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); (err == nil) != tt.fresh {
			t.Errorf("%s: err = %v, want fresh %t: %s", tt.name, err, tt.fresh, out)
		}
	}
}
