package resident

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func TestGrow(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "200")
	Grow(50)
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("the environment says something, and it was set to %d", got)
	}
	t.Setenv("GOGC", "")
	Grow(50)
	if got := debug.SetGCPercent(100); got != 50 {
		t.Errorf("set to %d, want 50", got)
	}
}

func TestCleanMappings(t *testing.T) {
	smaps := `00400000-01200000 r-xp 00000000 fe:00 1  /opt/my fairlead
Rss:               11784 kB
Private_Dirty:       400 kB
Anonymous:             0 kB
01200000-01300000 r--p 00e00000 fe:00 1  /opt/my fairlead
Anonymous:             4 kB
01300000-01400000 rw-p 00f00000 fe:00 1  /opt/my fairlead
Anonymous:             0 kB
01400000-01500000 r--p 01000000 fe:00 1  /opt/my fairlead
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 2  /lib/libc.so
Anonymous:             0 kB
7f0000001000-7f0000002000 r--p 00000000 00:00 0
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x1200000}, {0x1400000, 0x1500000}}
	if got, err := cleanMappings(strings.NewReader(smaps), "/opt/my fairlead"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%x (%v), want %x", got, err, want)
	}
}

// The pages go, and the program goes on.
func TestReleaseProgram(t *testing.T) {
	before := mapped(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after >= before {
		t.Errorf("%d of %d pages of files are still mapped", after, before)
	}
}

// mapped is how many pages of files the process has mapped, see proc(5).
func mapped(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident, shared int
	if _, err := fmt.Sscan(string(b), &size, &resident, &shared); err != nil {
		t.Fatal(err)
	}
	return shared
}
