// Package fdtest is for tests of what a process does that has no descriptors left.
package fdtest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Left has this process open so many descriptors more at most, until back is called. No test
// may run beside it.
func Left(t *testing.T, n uint64) (back func()) {
	t.Helper()
	free, err := os.Open(os.DevNull) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	lowest := uint64(free.Fd())
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	var had unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &had); err != nil {
		t.Fatal(err)
	}
	set := func(to unix.Rlimit) {
		if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &to, nil); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: lowest + n, Max: had.Max})
	return func() { set(had) }
}
