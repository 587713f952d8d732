package cri

import (
	"slices"
	"strings"
	"testing"
)

// must compares what a container printed, without spaces around it.
func must(t *testing.T, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// mustContain looks for lines.
func mustContain(t *testing.T, got string, lines ...string) {
	t.Helper()
	have := strings.Split(got, "\n")
	for _, line := range lines {
		if !slices.Contains(have, line) {
			t.Errorf("no line %q in %q", line, got)
		}
	}
}
