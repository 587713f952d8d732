package orphan

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/wire"
)

// A process has the status of its first thread, or of those that are left when
// that has ended by itself; the end of who is not watched is nothing.
func TestStatusOfProcess(t *testing.T) {
	const failed, killed = 5 << 8, 9
	exit := func(tid int, status uint32) event {
		return event{what: whatExit, pid: tid, tgid: 100, status: syscall.WaitStatus(status)}
	}
	program := event{what: whatExec, pid: 100, tgid: 100}
	for i, c := range []struct {
		events       []event
		seen         bool
		code, signal int
	}{
		{events: nil},
		{events: []event{exit(100, 0)}, seen: true},
		{events: []event{exit(100, failed)}, seen: true, code: 5},
		{events: []event{exit(100, killed)}, seen: true, code: 137, signal: 9},
		{events: []event{exit(101, failed)}},
		{events: []event{exit(101, 0), exit(100, failed), exit(102, 0)}, seen: true, code: 5},
		{events: []event{exit(100, 0), exit(101, 0), exit(102, failed)}, seen: true, code: 5},
		{events: []event{exit(100, killed), program}},
		{events: []event{exit(100, killed), program, exit(100, failed)}, seen: true, code: 5},
		{events: []event{{what: whatExit, pid: 7, tgid: 7}}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			records, err := record.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			who := record.Ident{PID: 100, Start: 3}
			e := &Ends{host: Host{Records: records}, watched: map[int]*watched{100: {who: who}}}
			for _, v := range c.events {
				e.note(v)
			}
			w := e.watched[100]
			kept, recorded := records.Exit(who)
			if w.seen != c.seen || recorded != c.seen || w.seen && (w.end.Code != c.code || w.end.Signal != c.signal || kept.Code != c.code) {
				t.Errorf("%+v, recorded %t %+v", w, recorded, kept)
			}
		})
	}
}

// The kernel reports how a process ended, and when.
func TestEvents(t *testing.T) {
	socket, err := openEvents()
	if err != nil {
		t.Skipf("needs root and a kernel with process events: %v", err)
	}
	defer func() { _ = socket.Close() }()
	e := &Ends{socket: socket, watched: map[int]*watched{}}
	if err := e.begin(false); err != nil {
		t.Skipf("needs process events in the first namespaces: %v", err)
	}
	before := time.Now()
	child := exec.Command("/bin/sh", "-c", "kill -SEGV $$")
	if err := child.Run(); child.ProcessState == nil {
		t.Fatal(err)
	}
	if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var found event
	err = raw.Read(func(fd uintptr) bool {
		for found.pid == 0 {
			if failed := next(int(fd), func(v event) {
				if v.what == whatExit && v.pid == child.Process.Pid {
					found = v
				}
			}); failed != nil {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.tgid != found.pid || found.status.Signal() != unix.SIGSEGV {
		t.Errorf("%+v", found)
	}
	// The clocks are read one after the other.
	if at := found.when(); at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("ended at %s, not between %s and %s", at, before, time.Now())
	}
}

// Nobody waits for ever when the last process is forgotten while events come.
func TestForgetWhileEventsCome(t *testing.T) {
	records, err := record.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := linkToNobody(t)
	who := record.Ident{PID: 100, Start: 3}
	for range 500 {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.SetNonblock(ends[0], true)
		}
		if err != nil {
			t.Fatal(err)
		}
		socket := os.NewFile(uintptr(ends[0]), "process events")
		e := &Ends{host: Host{Records: records, Link: link, Log: slog.Default()}, watched: map[int]*watched{100: {who: who}}, socket: socket}
		var wg sync.WaitGroup
		wg.Go(func() { e.read(t.Context(), socket) })
		began := make(chan struct{})
		wg.Go(func() {
			for n := 0; unix.Send(ends[1], []byte("event"), 0) == nil; n++ {
				if n == 1 {
					close(began)
				}
			}
			_ = unix.Close(ends[1])
		})
		<-began
		e.Forget(who)
		wg.Wait()
	}
}

// linkToNobody is a link to an outer process that holds nothing and hears all.
func linkToNobody(t *testing.T) *handover.Link {
	t.Helper()
	ends, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	outer, err := wire.NewConn(ends[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := outer.Send(handover.Message{Op: handover.Begin}); err != nil {
		t.Fatal(err)
	}
	link, err := handover.Connect(ends[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var m handover.Message
		for {
			if _, err := outer.Recv(&m, handover.MaxMessage); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = unix.Shutdown(ends[0], unix.SHUT_RDWR)
		wg.Wait()
		_ = outer.Close()
	})
	return link
}
