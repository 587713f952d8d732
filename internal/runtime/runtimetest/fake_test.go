package runtimetest

import (
	"os"
	"testing"
)

func TestFakeKeepsTheContract(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for chroot")
	}
	state := t.TempDir()
	f := NewFake(state)
	Run(t, Subject{
		StateDir: state,
		Open:     func(*testing.T) Handler { return f.Reopen() },
		Forget:   f.Forget,
	})
}
