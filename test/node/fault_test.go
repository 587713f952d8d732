package node

import (
	"strings"
	"testing"
)

func TestFault(t *testing.T) {
	const race = "WARNING: DATA RACE\nWrite at 0x1 by goroutine 7:\n"
	for name, c := range map[string]struct{ log, want string }{
		"nothing":         {"level=INFO msg=ready\n", ""},
		"a race":          {"level=INFO msg=ready\n" + race, race},
		"a panic":         {"level=INFO msg=ready\npanic: nil map\n", "panic: nil map\n"},
		"a dead process":  {"fatal error: all goroutines are asleep\n", "fatal error: all goroutines are asleep\n"},
		"a call":          {`level=ERROR msg="CRI call panicked" panic=oh` + "\n", `level=ERROR msg="CRI call panicked" panic=oh` + "\n"},
		"a shim's panic":  {`level=WARN msg="trial failed" error="the shim said: panic: closed"` + "\n", ""},
		"a very long one": {"panic: " + strings.Repeat("a", 10000), "panic: " + strings.Repeat("a", 8000-len("panic: "))},
	} {
		if got := fault(c.log); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
