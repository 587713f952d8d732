package linux

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/fdtest"
)

func TestParseStat(t *testing.T) {
	const tail = " S 10 20 30 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1000 10 0 0"
	for name, text := range map[string]string{
		"plain":       "42 (sh)" + tail,
		"with blanks": "42 (a b c)" + tail,
		"hostile":     "42 (x) Z 1 1 1 (y)" + tail,
	} {
		s, err := parseStat([]byte(text))
		if want := (Stat{PID: 42, State: 'S', PPID: 10, PGRP: 20, Session: 30, Start: 987654}); err != nil || s != want {
			t.Errorf("%s: %+v %v", name, s, err)
		}
	}
	for _, text := range []string{"", "42", "42 (sh", "42 (sh) S 1 2", "x (sh)" + tail, ")("} {
		if s, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
	if s, err := ReadStat(os.Getpid()); err != nil || s.PID != os.Getpid() || s.PPID != os.Getppid() || s.Start == 0 {
		t.Errorf("the own process: %+v %v", s, err)
	}
}

func TestOpenProcessComparesTheStart(t *testing.T) {
	s, err := ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenProcess(s.PID, s.Start)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if _, err := OpenProcess(s.PID, s.Start+1); err != os.ErrProcessDone {
		t.Errorf("another start: %v", err)
	}
}

// TestOpenProcessWithoutDescriptors takes no process for one that has ended, of which it cannot
// be seen that it is there.
func TestOpenProcessWithoutDescriptors(t *testing.T) {
	self, err := ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for more := range uint64(2) { // none, and one: for the process, and not for its status
		back := fdtest.Left(t, more)
		f, err := OpenProcess(self.PID, self.Start)
		back()
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("with %d left: %v, %v", more, f, err)
		}
	}
}
