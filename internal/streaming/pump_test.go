package streaming

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is what was written to it so far.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func draining(src *os.File) (s *screen, ended chan struct{}, done chan error) {
	s, ended, done = &screen{}, make(chan struct{}), make(chan error, 1)
	go func() { done <- drain(s, src, ended) }()
	return s, ended, done
}

func terminalPair(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, slave, err := openPTY()
	if err == nil {
		master, err = pollable(master)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	return master, slave
}

// A terminal that nobody has open may be opened again: by a process that closed
// its own and opens /dev/tty. Only the end of the process is the end.
func TestDrainWaitsForTheEndOfTheProcess(t *testing.T) {
	master, slave := terminalPair(t)
	name := slave.Name()
	_, _ = io.WriteString(slave, "one\n")
	_ = slave.Close()
	got, ended, done := draining(master)
	eventually(t, "the first line", func() bool { return strings.Contains(got.String(), "one") })
	select {
	case err := <-done:
		t.Fatalf("nobody has the terminal open, and nothing more is read: %v", err)
	case <-time.After(50 * time.Millisecond): // not long enough is long enough to pass
	}
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(slave, "two\n")
	_ = slave.Close()
	finish([]*os.File{master}, ended)
	if err := <-done; err != nil || got.String() != "one\r\ntwo\r\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// What a process wrote before its end is read, however late that is: a deadline
// only bounds the wait for what others may add.
func TestDrainReadsWhatIsThereAfterTheEnd(t *testing.T) {
	master, slave := terminalPair(t)
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, ends := range map[string][2]*os.File{"pipe": {r, w}, "terminal": {master, slave}} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			_, _ = io.WriteString(ends[1], "last")
			finish([]*os.File{ends[0]}, ended)
			var out bytes.Buffer
			o := &output{file: ends[0]}
			if o.raw, err = ends[0].SyscallConn(); err != nil {
				t.Fatal(err)
			}
			if n, err := o.await(make([]byte, 10)); n != 0 || err == nil {
				t.Fatalf("the deadline has passed, and %d bytes were read, %v", n, err)
			}
			if n, err := o.now(make([]byte, 2)); n != 2 || err != nil {
				t.Fatalf("after the deadline %d bytes were read at once, %v", n, err)
			}
			if err := drain(&out, ends[0], ended); err != nil || out.String() != "st" {
				t.Errorf("%q, %v", out.String(), err)
			}
		})
	}
}
