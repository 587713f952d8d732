package inner

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/wire"
)

// link is the connection to the outer process, with what it passed on.
type link struct {
	conn *wire.Conn

	mu   sync.Mutex
	got  map[string]int // passed and not yet taken
	keys map[string]int // what a successor needs: own descriptors by key
}

// connect says hello and receives what the outer process holds.
func connect(fd int) (*link, error) {
	conn, err := wire.NewConn(fd)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, got: map[string]int{}, keys: map[string]int{}}
	if err := l.send(handover.Hello, ""); err != nil {
		return nil, err
	}
	for {
		var m handover.Message
		fds, err := conn.Recv(&m, handover.MaxMessage)
		if err != nil {
			return nil, fmt.Errorf("take over from the outer process: %w", err)
		}
		if m.Op == handover.Held && len(fds) == 1 {
			l.got[m.Key] = fds[0]
			continue
		}
		wire.CloseAll(fds)
		if m.Op == handover.Begin {
			return l, nil
		}
	}
}

func (l *link) send(op handover.Op, key string, fds ...int) error {
	if err := l.conn.Send(handover.Message{Op: op, Key: key}, fds...); err != nil {
		return fmt.Errorf("tell the outer process %s %s: %w", op, key, err)
	}
	return nil
}

// take returns a descriptor that was passed on; it becomes the caller's, who
// has to keep it open for as long as a successor may need it.
func (l *link) take(key string) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fd, ok := l.got[key]
	if ok {
		delete(l.got, key)
		l.keys[key] = fd
	}
	return fd, ok
}

// hold gives the outer process a copy. If it is dead, this process is about to
// replace it, with the descriptor.
func (l *link) hold(key string, fd int) {
	l.mu.Lock()
	l.keys[key] = fd
	l.mu.Unlock()
	_ = l.send(handover.Hold, key, fd)
}

// drop lets the outer process close its copy. The own descriptor stays the
// caller's.
func (l *link) drop(key string) {
	l.mu.Lock()
	delete(l.keys, key)
	l.mu.Unlock()
	_ = l.send(handover.Drop, key)
}

// discard closes what was passed on and taken by nobody.
func (l *link) discard() {
	l.mu.Lock()
	left := l.got
	l.got = map[string]int{}
	l.mu.Unlock()
	for key, fd := range left {
		if key == handover.KeyListener {
			l.mu.Lock()
			l.got[key] = fd
			l.mu.Unlock()
			continue
		}
		_ = unix.Close(fd)
		_ = l.send(handover.Drop, key)
	}
}

// held returns what a new outer process has to hold.
func (l *link) held() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(map[string]int, len(l.keys))
	for key, fd := range l.keys {
		held[key] = fd
	}
	return held
}

// rest ends the reading of the connection, which stays open.
func (l *link) rest() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) }

// listenToOuter waits for what the outer process has to say: to upgrade, to
// stop, or, by the end of the connection, that it has died.
func (in *Inner) listenToOuter() {
	for {
		var m handover.Message
		fds, err := in.link.conn.Recv(&m, handover.MaxMessage)
		wire.CloseAll(fds)
		if in.resting.Load() {
			return
		}
		if err != nil {
			in.cfg.Log.Warn("outer process died; taking its place", "error", err)
			in.rest <- outerDied
			return
		}
		switch m.Op {
		case handover.Upgrade:
			in.rest <- upgrade
			return
		case handover.Shutdown:
			in.spawn(in.stopIfIdle)
		}
	}
}
