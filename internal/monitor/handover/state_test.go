package handover

import (
	"maps"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func survives(t *testing.T, fd int) bool {
	t.Helper()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.FD_CLOEXEC == 0
}

// A descriptor that was closed meanwhile is left out, on both sides of an exec,
// and without one that is needed nothing survives it.
func TestPack(t *testing.T) {
	open := func() int {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	a, b, lock := open(), open(), open()
	defer unix.Close(a)
	gone := open()
	_ = unix.Close(gone)
	s := &State{Held: map[string]int{"a": a, "b": b, "gone": gone}, Lock: lock}
	fd, err := s.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if !survives(t, a) || !survives(t, lock) || !survives(t, fd) {
		t.Error("a descriptor that is handed over does not survive an exec")
	}
	_ = unix.Close(b)
	got, err := Unpack(fd)
	if err != nil {
		t.Fatal(err)
	}
	if keys := slices.Collect(maps.Keys(got.Held)); !slices.Equal(keys, []string{"a"}) {
		t.Errorf("held: %v", got.Held)
	}
	if survives(t, a) || survives(t, lock) {
		t.Error("a descriptor that was taken over survives the next exec, too")
	}
	_ = unix.Close(lock)
	if _, err := s.Pack(); err == nil {
		t.Error("packed without the lock")
	}
	if survives(t, a) {
		t.Error("a descriptor survives an exec that does not come")
	}
}
