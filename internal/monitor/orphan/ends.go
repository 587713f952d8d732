package orphan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
)

// told is a place at which a test kills this process, or lets it take the kernel
// for an old one, by an error.
var told = failpoint.Register("monitor.inner.kernel-tells")

// Host is what Ends needs of the inner process.
type Host struct {
	Records *record.Dir
	// Link lets the outer process hold the socket, so that what happens while
	// there is no inner process waits in it.
	Link  *handover.Link
	Spawn func(func(context.Context))
	Log   *slog.Logger
}

// Ends knows how processes ended. An end that the kernel reports is recorded
// as the outer process records those of its children.
type Ends struct {
	host Host

	mu      sync.Mutex
	watched map[int]*watched // by pid
	socket  *os.File         // nil while nobody listens
	acked   bool
	refused bool // the kernel has no events for this process
}

// watched is a process that is not a child of this one.
type watched struct {
	who  record.Ident
	seen bool
	end  linux.Ended // once seen
}

// lateLimit bounds the wait for the event of a process that is gone: the kernel
// sends it a moment after the end.
const lateLimit = 2 * time.Second

// settle is how long the events of a process's threads may be apart.
const settle = 20 * time.Millisecond

// New goes on where the predecessor was, which listened for some of those that
// run.
func New(host Host, running []record.Ident) *Ends {
	e := &Ends{host: host, watched: map[int]*watched{}}
	e.Watch(running...)
	return e
}

// Watch listens for the ends of those that are not children of this process, if
// the kernel tells it in no better way.
func (e *Ends) Watch(running ...record.Ident) {
	if kernelTells() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	alive := false
	for _, who := range running {
		s, err := linux.ReadStat(who.PID)
		there := err == nil && s.Start == who.Start
		if there && s.PPID == os.Getpid() {
			continue
		}
		w := &watched{who: who}
		w.end, w.seen = e.host.Records.Exit(who)
		e.watched[who.PID] = w
		alive = alive || there
	}
	if len(e.watched) > 0 && e.socket == nil && !e.refused {
		e.listen(alive)
	}
}

// listen takes the predecessor's socket, or makes one if somebody lives whose
// end will come. The caller holds mu.
func (e *Ends) listen(alive bool) {
	fd, kept := e.host.Link.Take(handover.KeyEnds)
	var err error
	switch {
	case kept:
		e.socket = os.NewFile(uintptr(fd), "process events")
	case alive:
		e.socket, err = openEvents()
	default:
		return
	}
	if err == nil {
		err = e.begin(kept)
	}
	if err != nil {
		e.host.Log.Warn("the kernel reports no ends of processes; those of other parents will be lost", "error", err)
		e.refused = true
		hangUp(e.socket)
		e.socket = nil
		return
	}
	socket := e.socket
	e.host.Link.Hold(handover.KeyEnds, linux.RawFD(socket))
	e.host.Spawn(func(ctx context.Context) { e.read(ctx, socket) })
}

// begin reads what is there, and from a new socket until the kernel has
// acknowledged it. The caller holds mu.
func (e *Ends) begin(acked bool) error {
	fd := linux.RawFD(e.socket)
	e.acked = acked
	for limit := time.Now().Add(ackLimit); ; {
		err := next(fd, e.note)
		switch {
		case e.refused:
			return errors.New("it refuses to")
		case err == nil || errors.Is(err, unix.ENOBUFS):
			continue
		case !errors.Is(err, errEmpty):
			return err
		case e.acked:
			return nil
		case time.Now().After(limit):
			return fmt.Errorf("no answer in %s", ackLimit)
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, _ = unix.Poll(poll, int(ackLimit/time.Millisecond))
	}
}

// read notes events until ctx ends or nobody is watched any more.
func (e *Ends) read(ctx context.Context, socket *os.File) {
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := socket.SyscallConn()
	for err == nil {
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.socket == socket {
				failed = next(int(fd), e.note)
			}
			return !errors.Is(failed, errEmpty)
		})
		if errors.Is(failed, unix.ENOBUFS) {
			e.host.Log.Warn("the kernel has dropped ends of processes that nobody read in time")
		}
	}
}

// note keeps what concerns a process that is watched. The caller holds mu.
func (e *Ends) note(v event) {
	if v.what == whatAck {
		// Others that listen get their answers here, too.
		if !e.acked {
			e.acked, e.refused = true, v.refused != 0
		}
		return
	}
	w := e.watched[v.tgid]
	if w == nil {
		return
	}
	first := v.pid == v.tgid
	switch {
	case v.what == whatExec:
		// The first thread has ended because another one executes a program.
		w.seen = false
		e.host.Records.DropExit(w.who)
		return
	case first, w.seen && w.end.Code == 0:
		// The process has the status of its first thread, or, if that ended by
		// itself before, of those that ended together.
	default:
		return
	}
	w.seen = true
	w.end = linux.Ended{PID: w.who.PID, Start: w.who.Start, At: v.when()}
	w.end.Code, w.end.Signal = linux.StatusCode(v.status)
	if err := e.host.Records.SaveExit(w.end); err != nil {
		e.host.Log.Error("exit not recorded", "pid", v.tgid, "code", w.end.Code, "error", err)
	}
}

// Of returns how a process ended that is gone. A pidfd may be nil. Where nobody
// has told when, that is as of now.
func (e *Ends) Of(who record.Ident, pidfd *os.File) (linux.Ended, bool) {
	if e.await(who) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if w := e.watched[who.PID]; w != nil && w.who == who && w.seen {
			return w.end, true
		}
	}
	if end, ok := e.host.Records.Exit(who); ok {
		return end, true
	}
	end := linux.Ended{PID: who.PID, Start: who.Start, At: time.Now(), Found: true}
	if pidfd == nil || failpoint.Hit(told) != nil {
		return end, false
	}
	var ok bool
	end.Code, end.Signal, ok = linux.EndOfReaped(pidfd)
	return end, ok
}

// await waits for the event of a process that is watched.
func (e *Ends) await(who record.Ident) bool {
	state := func() (listening, seen bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		w := e.watched[who.PID]
		if w == nil || w.who != who {
			return false, false
		}
		return e.socket != nil, w.seen
	}
	for limit := time.Now().Add(lateLimit); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		listening, seen := state()
		if seen {
			time.Sleep(settle)
			return true
		}
		if !listening {
			return false
		}
	}
	return false
}

// Forget ends the interest in a process whose end is known, and the listening
// with the last of them.
func (e *Ends) Forget(who record.Ident) {
	// A close waits for who reads, and that may wait for mu.
	hangUp(e.forget(who))
}

// forget returns the socket if nobody listens to it any more.
func (e *Ends) forget(who record.Ident) *os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.watched[who.PID]; w == nil || w.who != who {
		return nil
	}
	delete(e.watched, who.PID)
	e.host.Records.DropExit(who)
	if len(e.watched) > 0 || e.socket == nil {
		return nil
	}
	e.host.Link.Drop(handover.KeyEnds)
	socket := e.socket
	e.socket = nil
	return socket
}

func hangUp(socket *os.File) {
	if socket == nil {
		return
	}
	// A kernel that does not see the close goes on counting a listener.
	_ = ask(linux.RawFD(socket), ignore)
	_ = socket.Close()
}

// kernelTells says whether the kernel tells of a process that is open how it
// ended. One that has learned it earlier than others is only asked twice.
func kernelTells() bool {
	var u unix.Utsname
	if failpoint.Hit(told) != nil || unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 15
}
