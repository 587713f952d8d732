package streaming

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

var (
	errClientGone = errors.New("the client has gone")
	errEnded      = errors.New("the stream has ended")
)

// watchEvery is how often a link looks whether its client is still there and
// anything has moved. Reading notices a client that goes, but not while what
// it sent before is waiting for a process that does not read its input.
const watchEvery = time.Second

// link is the connection of one client once it has left HTTP. It ends the
// stream's context when the client has gone, and closes when that context ends.
type link struct {
	net.Conn
	r     *bufio.Reader // holds what came with the HTTP request
	gone  context.CancelCauseFunc
	moved atomic.Int64 // when data did, in unix nanoseconds
	done  sync.WaitGroup
	once  sync.Once
	// finished is closed when all was said to the client that is to be said.
	finished chan struct{}
}

// Close implements net.Conn. Several sides may close a link; that is no error.
func (l *link) Close() (err error) {
	l.once.Do(func() { err = l.Conn.Close() })
	return err
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	return n, l.note(err)
}

func (l *link) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		var more int
		more, err = l.push(p[n:], err)
		n += more
	}
	return n, l.note(err)
}

// push writes what there is room for. A deadline bounds the wait for a client that
// takes nothing; on a busy machine it may pass before the first attempt.
func (l *link) push(p []byte, late error) (n int, err error) {
	t, ok := l.Conn.(*net.TCPConn)
	if !ok {
		return 0, late
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, errors.Join(late, err)
	}
	cerr := raw.Control(func(fd uintptr) {
		for n < len(p) && err == nil {
			var m int
			m, err = unix.Write(int(fd), p[n:])
			n += max(m, 0)
			if errors.Is(err, unix.EINTR) {
				err = nil
			}
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		err = late
	}
	return n, errors.Join(err, cerr)
}

// leave lets the client read the end of the stream and close its connection. A
// client that has everything gets linger for that; one that has not gets it as
// long as it takes any, because closing could take bytes back that are on their way.
func leave[T any](ctx context.Context, l *link, closed <-chan T) {
	giveUp := time.Now().Add(delivery)
	for {
		select {
		case <-closed:
			return
		case <-ctx.Done():
			return
		case <-time.After(linger):
		}
		if !l.sending() || time.Now().After(giveUp) {
			return
		}
	}
}

// sending says whether there are bytes that the client's side has not got.
func (l *link) sending() bool {
	t, ok := l.Conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	left := 0
	cerr := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return cerr == nil && err == nil && left > 0
}

func (l *link) note(err error) error {
	if err != nil {
		l.gone(errClientGone)
	}
	return err
}

// move notes that the stream is in use.
func (l *link) move() { l.moved.Store(time.Now().UnixNano()) }

// reading is r, and notes what moves. It is nil for no reader, as is writing.
func (l *link) reading(r io.Reader) io.Reader {
	if r == nil {
		return nil
	}
	return &mover{r: r, move: l.move}
}

func (l *link) writing(w io.Writer) io.Writer {
	if w == nil {
		return nil
	}
	return &mover{w: w, move: l.move}
}

// mover notes when data moves. What a connection carries beside data does not
// count: clients send pings for as long as they live, used or not.
type mover struct {
	r    io.Reader
	w    io.Writer
	move func()
}

func (m *mover) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if n > 0 {
		m.move()
	}
	return n, err
}

func (m *mover) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	if n > 0 {
		m.move()
	}
	return n, err
}

// watch ends the context when the client has gone or nothing moves any more.
func (l *link) watch(ctx context.Context, idle time.Duration) {
	tick := time.NewTicker(min(watchEvery, max(idle/4, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.lastWords(context.Cause(ctx))
			_ = l.Close()
			return
		case <-tick.C:
		}
		switch {
		case time.Since(time.Unix(0, l.moved.Load())) > idle:
			l.gone(fmt.Errorf("no data moved on the stream for %s: %w", idle, errdefs.ErrDeadline))
		case hungUp(l.Conn):
			l.gone(errClientGone)
		}
	}
}

// lastWords leaves time to tell a client why its stream ended, if it is there.
func (l *link) lastWords(cause error) {
	if errors.Is(cause, errClientGone) {
		return
	}
	select {
	case <-l.finished:
	case <-time.After(killTimeout + linger):
	}
}

// hungUp says whether the peer closed its end. Neither SPDY nor WebSocket has
// a use for a connection that is half open.
func hungUp(c net.Conn) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	if cerr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }); cerr != nil || err != nil {
		return true
	}
	const established = 1 // TCP_ESTABLISHED of linux/tcp_states.h
	return info.State != established
}

// upgrade is a response writer whose connection becomes a link when it is
// taken over.
type upgrade struct {
	http.ResponseWriter
	adopt func(net.Conn, *bufio.Reader) *link
	gone  context.CancelCauseFunc
	link  *link
}

// newUpgrade returns the context of a new stream, which ends with its client.
func newUpgrade(parent context.Context, w http.ResponseWriter, idle time.Duration) (context.Context, *upgrade) {
	ctx, gone := context.WithCancelCause(parent)
	adopt := func(c net.Conn, r *bufio.Reader) *link {
		l := &link{Conn: c, r: r, gone: gone, finished: make(chan struct{})}
		l.move()
		l.done.Go(func() { l.watch(ctx, idle) })
		return l
	}
	return ctx, &upgrade{ResponseWriter: w, adopt: adopt, gone: gone}
}

// Hijack implements http.Hijacker.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{}) // those of HTTP hold no longer
	u.link = u.adopt(conn, rw.Reader)
	return u.link, rw, nil
}

// close ends the stream and waits for what watches it.
func (u *upgrade) close() {
	u.gone(errEnded)
	if u.link != nil && !isClosed(u.link.finished) { // one goroutine closes, maybe twice
		close(u.link.finished)
		u.link.done.Wait()
	}
}
