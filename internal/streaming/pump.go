package streaming

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// What is still read once a process has ended. All it wrote is in the pipe by
// then, so a pipe's greatest usual size is enough; something it started and
// left behind may hold the other end for ever, and gets no more than quiet to
// add to it.
const (
	maxLeft = 1 << 20
	quiet   = 250 * time.Millisecond
)

// drain copies what a process writes until nobody has the other end any more,
// or until the process has ended and what it left is read.
func drain(dst io.Writer, src *os.File, ended <-chan struct{}) error {
	buf := make([]byte, 32<<10)
	for left := maxLeft; left > 0; {
		over := isClosed(ended)
		if over {
			_ = src.SetReadDeadline(time.Now().Add(quiet))
		}
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return fmt.Errorf("write to the client: %w", err)
			}
		}
		if over {
			left -= n
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !over: // the end came during this read
		case errors.Is(err, io.EOF), errors.Is(err, unix.EIO), errors.Is(err, os.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return nil // EIO is how a terminal says EOF
		default:
			return fmt.Errorf("read the output of the process: %w", err)
		}
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// feed copies what a client sends to a process. What comes after the process
// has stopped reading is dropped, because what waits for its reader would hold
// up everything else on the connection. It returns when the client is done.
func feed(dst *os.File, src io.Reader, atEOF func()) {
	_, err := io.Copy(onlyWriter{dst}, src)
	if err == nil {
		atEOF()
		return
	}
	_, _ = io.Copy(io.Discard, src)
}

// onlyWriter hides that a file could be spliced into, which is of no use for a
// stream of messages.
type onlyWriter struct{ io.Writer }

// pollable makes sure that closing f ends a read or write in progress. A file
// that came over a socket may be a blocking one.
func pollable(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := raw.Control(func(old uintptr) { // f.Fd would make it a blocking one
		flags, ferr := unix.FcntlInt(old, unix.F_GETFL, 0)
		if ferr == nil && flags&unix.O_NONBLOCK != 0 && f.SetDeadline(time.Time{}) == nil {
			return
		}
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, errors.Join(err, f.Close())
	}
	if fd < 0 {
		return f, nil
	}
	return os.NewFile(uintptr(fd), f.Name()), f.Close()
}
