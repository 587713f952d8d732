package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/wire"
)

// AttachStreams says what an attached caller wants.
type AttachStreams struct {
	Stdin, Stdout, Stderr bool
}

// AttachSession is one caller's part in a container's input and output. What
// the container wrote before is in its log.
type AttachSession struct {
	// Stdout and Stderr end when the container's output does; nil if they were
	// not asked for. With a terminal, Stderr ends at once.
	Stdout, Stderr io.Reader
	// TTY says that the container has a terminal.
	TTY bool

	conn   *wire.Conn
	input  *os.File // nil when there is none
	files  []*os.File
	wrote  atomic.Bool
	closed sync.Once
	once   sync.Once
}

// attachPipe is the size asked for the pipes of an attached caller, in bytes:
// what it may lag behind without the monitor's memory.
const attachPipe = 1 << 20

// Attach joins a container's input and output. The session has to be closed.
func (c *Client) Attach(ctx context.Context, id string, want AttachStreams) (*AttachSession, error) {
	s := &AttachSession{}
	var ends []int
	fail := func(err error) (*AttachSession, error) {
		wire.CloseAll(ends)
		_ = s.Close()
		return nil, err
	}
	for _, w := range []struct {
		wanted bool
		to     *io.Reader
	}{{want.Stdout, &s.Stdout}, {want.Stderr, &s.Stderr}} {
		if !w.wanted {
			continue
		}
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return fail(fmt.Errorf("attach to container %s: %w", id, os.NewSyscallError("pipe2", err)))
		}
		// A smaller pipe only means being cut off earlier.
		_, _ = unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, attachPipe)
		f := os.NewFile(uintptr(pipe[0]), "output of container")
		s.files = append(s.files, f)
		*w.to = f
		ends = append(ends, pipe[1])
	}
	var attached monitorv1.Attached
	body := monitorv1.AttachRequest{ID: id, Stdin: want.Stdin, Stdout: want.Stdout, Stderr: want.Stderr}
	conn, fds, err := c.call(ctx, request{op: monitorv1.OpAttach, body: body, fds: ends}, &attached)
	if err != nil {
		return fail(err)
	}
	wire.CloseAll(ends)
	s.conn, s.TTY = conn, attached.TTY
	if attached.Stdin && len(fds) == 1 {
		s.input = fileOf(fds[0], "input of container")
		fds = nil
	}
	wire.CloseAll(fds)
	return s, nil
}

// Write writes to the container's input. It blocks while the container does
// not read, until Close. The error of an input that is closed wraps
// os.ErrClosed.
func (s *AttachSession) Write(p []byte) (int, error) {
	if s.input == nil {
		return 0, fmt.Errorf("write to the container's input: %w", os.ErrClosed)
	}
	if len(p) > 0 {
		s.wrote.Store(true)
	}
	n, err := s.input.Write(p)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) {
		err = fmt.Errorf("write to the container's input: %w: %w", os.ErrClosed, err)
	}
	return n, err
}

// CloseStdin says that no more input comes from here. It closes the container's
// input if that was asked for with StdinOnce and something was written, or
// there was nothing to write.
func (s *AttachSession) CloseStdin() error {
	var err error
	s.once.Do(func() {
		if s.input == nil {
			return
		}
		_ = s.input.Close()
		// An input that ends without a byte has been used, too.
		err = s.conn.Send(monitorv1.AttachNote{StdinDone: true, Wrote: true})
	})
	return err
}

// Wait returns when the monitor ends the session: nil when the container's
// output has ended, an error that wraps ErrExhausted when this caller read too
// slowly, ErrUnavailable when the monitor was restarted. It ends with Close.
func (s *AttachSession) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	for {
		var note monitorv1.AttachNote
		fds, err := s.conn.Recv(&note, monitorv1.MaxReply)
		wire.CloseAll(fds)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("attach: the monitor hung up: %w: %w", errdefs.ErrUnavailable, err)
		case note.Error != nil:
			return fromWire(note.Error)
		case note.Ended:
			return nil
		}
	}
}

// Close leaves the container.
func (s *AttachSession) Close() error {
	s.closed.Do(func() {
		if s.conn != nil {
			s.once.Do(func() {
				if s.input == nil {
					return
				}
				_ = s.input.Close()
				// The monitor takes silence for having written.
				_ = s.conn.Send(monitorv1.AttachNote{StdinDone: true, Wrote: s.wrote.Load()})
			})
			_ = s.conn.Close()
		}
		for _, f := range s.files {
			_ = f.Close()
		}
	})
	return nil
}
