package handover

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/wire"
)

// Link is the inner process's end of the control connection, with what the
// outer process has passed on.
type Link struct {
	conn *wire.Conn

	mu   sync.Mutex
	got  map[string]int // passed and not yet taken
	keys map[string]int // what a successor needs: own descriptors by key
}

// ErrOuterDied says that nobody is at the other end of the connection.
var ErrOuterDied = errors.New("the outer process died")

// Connect says hello and receives what the outer process holds. What the caller
// has kept of it itself is closed then. With ErrOuterDied the link comes back,
// too: it has what was kept or received, for an outer process to hold.
func Connect(fd int, kept map[string]int) (*Link, error) {
	conn, err := wire.NewConn(fd)
	if err != nil {
		return nil, err
	}
	l := &Link{conn: conn, got: map[string]int{}, keys: map[string]int{}}
	err = l.takeOver()
	if err == nil {
		for _, fd := range kept {
			_ = unix.Close(fd)
		}
		return l, nil
	}
	if !hungUp(err) {
		return nil, fmt.Errorf("take over from the outer process: %w", err)
	}
	for key, fd := range kept {
		l.keys[key] = fd
	}
	for key, fd := range l.got {
		l.keys[key] = fd
	}
	return l, fmt.Errorf("take over: %w: %w", ErrOuterDied, err)
}

// takeOver receives what the outer process holds.
func (l *Link) takeOver() error {
	if err := l.Send(Hello, ""); err != nil {
		return err
	}
	for {
		var m Message
		fds, err := l.conn.Recv(&m, MaxMessage)
		if err != nil {
			return err
		}
		if m.Op == Held && len(fds) == 1 {
			l.got[m.Key] = fds[0]
			continue
		}
		wire.CloseAll(fds)
		if m.Op == Begin {
			return nil
		}
	}
}

func hungUp(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, unix.EPIPE, unix.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Send sends a message, with descriptors that stay the caller's.
func (l *Link) Send(op Op, key string, fds ...int) error {
	if err := l.conn.Send(Message{Op: op, Key: key}, fds...); err != nil {
		return fmt.Errorf("tell the outer process %s %s: %w", op, key, err)
	}
	return nil
}

// Take returns a descriptor that was passed on; it becomes the caller's, who
// has to keep it open for as long as a successor may need it.
func (l *Link) Take(key string) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fd, ok := l.got[key]
	if ok {
		delete(l.got, key)
		l.keys[key] = fd
	}
	return fd, ok
}

// Hold gives the outer process a copy. If it is dead, this process is about to
// replace it, with the descriptor.
func (l *Link) Hold(key string, fd int) {
	l.mu.Lock()
	l.keys[key] = fd
	l.mu.Unlock()
	_ = l.Send(Hold, key, fd)
}

// Drop lets the outer process close its copy. The own descriptor stays the
// caller's.
func (l *Link) Drop(key string) {
	l.mu.Lock()
	delete(l.keys, key)
	l.mu.Unlock()
	_ = l.Send(Drop, key)
}

// Discard closes what was passed on and taken by nobody.
func (l *Link) Discard() {
	l.mu.Lock()
	left := l.got
	l.got = map[string]int{}
	l.mu.Unlock()
	for key, fd := range left {
		if key == KeyListener {
			l.mu.Lock()
			l.got[key] = fd
			l.mu.Unlock()
			continue
		}
		_ = unix.Close(fd)
		_ = l.Send(Drop, key)
	}
}

// Held returns what a new outer process has to hold.
func (l *Link) Held() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(map[string]int, len(l.keys))
	for key, fd := range l.keys {
		held[key] = fd
	}
	return held
}

// Rest ends the reading of the connection, which stays open.
func (l *Link) Rest() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) }

// FD returns the descriptor of the connection.
func (l *Link) FD() int { return l.conn.FD() }

// Recv waits for what the outer process has to say. Its error means that the
// outer process has died, or that Rest was called.
func (l *Link) Recv() (Op, error) {
	var m Message
	fds, err := l.conn.Recv(&m, MaxMessage)
	wire.CloseAll(fds)
	return m.Op, err
}
