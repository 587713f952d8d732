package daemon

import (
	"runtime/debug"
	"testing"
)

func TestSaveMemory(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "200")
	saveMemory()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("the environment says something, and it was set to %d", got)
	}
	t.Setenv("GOGC", "")
	saveMemory()
	if got := debug.SetGCPercent(100); got != gcPercent {
		t.Errorf("set to %d, want %d", got, gcPercent)
	}
}
