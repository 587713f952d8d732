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

// mustSay looks for words.
func mustSay(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("no %q in %q", w, got)
		}
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
