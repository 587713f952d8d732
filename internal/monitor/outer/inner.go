package outer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/wire"
)

// Respawning. An inner process that dies sooner than healthy after its start
// counts as a failure; every second attempt then runs the binary that this
// process is, in case the one on disk is broken.
const (
	healthy     = 5 * time.Second
	freeRetries = 3
	minBackoff  = 20 * time.Millisecond
	maxBackoff  = time.Second
)

// maxExits bounds the files of exits that no inner process has claimed, as it
// never does those of processes that it does not know.
const maxExits = 4096

// reap records and reaps every child that has ended, and says whether the
// inner process was among them.
func (o *outer) reap() (innerDied bool) {
	for {
		e, ok := linux.NextEnded()
		if !ok {
			return innerDied
		}
		switch e.PID {
		case o.inner:
			innerDied = true
			o.cfg.Log.Warn("inner process died", "pid", e.PID, "code", e.Code, "signal", e.Signal)
		case o.check:
			o.checked(e)
		default:
			o.recordExit(e)
		}
		linux.Reap(e.PID)
	}
}

func (o *outer) recordExit(e linux.Ended) {
	if err := o.records.SaveExit(e); err != nil {
		o.cfg.Log.Error("exit not recorded", "pid", e.PID, "code", e.Code, "error", err)
		return
	}
	_ = failpoint.Hit(exitRecorded)
	o.ends.exits = append(o.ends.exits, record.Ident{PID: e.PID, Start: e.Start})
	if len(o.ends.exits) > maxExits {
		o.records.DropExit(o.ends.exits[0])
		o.ends.exits = o.ends.exits[1:]
	}
}

// forget drops what belonged to the dead inner process, after its last
// messages were read: one may carry a terminal.
func (o *outer) forget() {
	o.inner = 0
	if time.Since(o.last.at) < healthy {
		o.last.fails++
	} else {
		o.last.fails = 0
	}
	if o.read != nil {
		select {
		case <-o.read:
		case <-time.After(time.Second):
		}
		o.read = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn != nil {
		_ = o.conn.Close()
		o.conn = nil
	}
}

// respawn starts an inner process, or returns a channel that says when to try
// again.
func (o *outer) respawn() <-chan time.Time {
	if wait := o.backoff(); wait > 0 {
		return time.After(wait)
	}
	if err := o.spawn(); err != nil {
		o.last.fails++
		o.last.at = time.Now()
		o.cfg.Log.Error("inner process not started", "error", err)
		return time.After(o.backoff())
	}
	return nil
}

func (o *outer) backoff() time.Duration {
	if o.last.fails < freeRetries {
		return 0
	}
	pause := min(minBackoff<<min(o.last.fails-freeRetries, 10), maxBackoff)
	return max(0, pause-time.Since(o.last.at))
}

func (o *outer) spawn() error {
	pair, err := wire.Pair()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(pair[1]) }()
	conn, err := wire.NewConn(pair[0])
	if err != nil {
		return err
	}
	args := []string{
		handover.Arg(handover.FlagRole, handover.RoleInner),
		handover.Arg(handover.FlagState, o.cfg.StateDir),
		handover.Arg(handover.FlagBinary, o.cfg.Binary),
		handover.ArgFD(handover.FlagControl, 3),
		handover.ArgFD(handover.FlagLock, 4),
	}
	if o.score != "" {
		args = append(args, handover.Arg(handover.FlagScore, o.score))
	}
	files := []uintptr{uintptr(pair[1]), uintptr(o.lock)}
	start := handover.SpawnSelf
	if o.last.fails%2 == 0 {
		start = func(args []string, procs string, files []uintptr) (int, error) {
			return handover.Spawn(o.cfg.Binary, args, procs, files)
		}
	}
	pid, err := start(args, innerMaxProcs, files)
	if err != nil {
		_ = conn.Close()
		return err
	}
	o.inner, o.last.at = pid, time.Now()
	_ = failpoint.Hit(spawned)
	o.listenTo(conn)
	return nil
}

// listenTo reads the control connection until it ends or the inner process is
// about to exec.
func (o *outer) listenTo(conn *wire.Conn) {
	o.mu.Lock()
	o.conn = conn
	o.mu.Unlock()
	read := make(chan struct{})
	o.read = read
	o.wg.Go(func() {
		defer close(read)
		for {
			more, err := o.receive(conn)
			if err != nil {
				o.cfg.Log.Error("control connection failed", "error", err)
			}
			if !more {
				return
			}
		}
	})
}

// receive handles one message, and says whether to expect another.
func (o *outer) receive(conn *wire.Conn) (bool, error) {
	var m handover.Message
	fds, err := conn.Recv(&m, handover.MaxMessage)
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return false, nil
	}
	if err != nil {
		return errors.Is(err, wire.ErrMalformed), err
	}
	switch m.Op {
	case handover.Hello:
		return true, o.sendHeld(conn)
	case handover.Hold:
		if len(fds) != 1 {
			wire.CloseAll(fds)
			return true, fmt.Errorf("hold %s: %d descriptors", m.Key, len(fds))
		}
		o.hold(m.Key, fds[0])
		return true, nil
	case handover.Drop:
		o.drop(m.Key)
	case handover.Upgrade:
		// The next bytes are for the process that comes after the exec.
		o.events <- event{m.Op}
		return false, nil
	default:
		o.events <- event{m.Op}
	}
	wire.CloseAll(fds)
	return true, nil
}

// sendHeld gives an inner process all that is held. One that got less would
// wait for the rest, so it is replaced.
func (o *outer) sendHeld(conn *wire.Conn) error {
	err := o.sendAll(conn)
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		o.events <- event{stuck}
	}
	return err
}

func (o *outer) sendAll(conn *wire.Conn) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, fd := range o.held {
		err := conn.Send(handover.Message{Op: handover.Held, Key: key}, fd)
		if errors.Is(err, unix.EBADF) {
			o.cfg.Log.Error("a descriptor was lost", "key", key)
			if err = o.lose(conn, key); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("pass %s on: %w", key, err)
		}
	}
	_ = failpoint.Hit(greeted)
	return conn.Send(handover.Message{Op: handover.Begin})
}

// lose forgets what is not open. Nobody could reach the monitor without its
// socket, so that one is made again.
func (o *outer) lose(conn *wire.Conn, key string) error {
	delete(o.held, key)
	if key != handover.KeyListener {
		return nil
	}
	listener, err := wire.Listen(Socket(o.cfg.StateDir))
	if err != nil {
		return err
	}
	o.held[key] = listener
	return conn.Send(handover.Message{Op: handover.Held, Key: key}, listener)
}

func (o *outer) hold(key string, fd int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if old, ok := o.held[key]; ok {
		o.ends.watch.Remove(key)
		_ = unix.Close(old)
	}
	o.held[key] = fd
	if !strings.HasPrefix(key, handover.KeyPidfd) {
		return
	}
	o.ends.since[key] = time.Now()
	if err := o.ends.watch.Add(key, fd); err != nil {
		o.cfg.Log.Warn("the end of a process is not watched", "key", key, "error", err)
	}
}

func (o *outer) drop(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fd, ok := o.held[key]; ok {
		o.ends.watch.Remove(key)
		_ = unix.Close(fd)
		delete(o.held, key)
		delete(o.ends.since, key)
	}
}
