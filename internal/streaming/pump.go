package streaming

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What is still read once a process has ended. All that it wrote can be read by
// then; something it started and left behind may hold the other end for ever, and
// gets no more than quiet to add to it.
const (
	maxLeft = 1 << 20
	quiet   = 250 * time.Millisecond
)

// output is one of a process's outputs, as this side reads it.
type output struct {
	file *os.File
	raw  syscall.RawConn
}

// drain copies what a process writes until nobody has the other end any more,
// or until the process has ended, which finish tells, and what it left is read.
func drain(dst io.Writer, src *os.File, ended <-chan struct{}) error {
	raw, err := src.SyscallConn()
	if err != nil {
		return fmt.Errorf("read the output of the process: %w", err)
	}
	o := &output{file: src, raw: raw}
	buf := make([]byte, 32<<10)
	for {
		n, err := o.await(buf)
		if more, err := deliver(dst, buf[:n], err); !more {
			return err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			<-ended
			return o.rest(dst, buf)
		}
	}
}

// rest copies what is there at once, however late it is, and what comes before it
// has been quiet.
func (o *output) rest(dst io.Writer, buf []byte) error {
	for left := maxLeft; left > 0; {
		n, err := o.now(buf)
		if errors.Is(err, unix.EAGAIN) {
			_ = o.file.SetReadDeadline(time.Now().Add(quiet))
			n, err = o.await(buf)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if more, err := deliver(dst, buf[:n], err); !more {
			return err
		}
		left -= n
	}
	return nil
}

// deliver passes on what was read, and says whether more may come.
func deliver(dst io.Writer, data []byte, err error) (more bool, _ error) {
	switch {
	case len(data) > 0:
		if _, err := dst.Write(data); err != nil {
			return false, fmt.Errorf("write to the client: %w", err)
		}
		return true, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return true, nil
	case err == nil, errors.Is(err, unix.EIO): // EIO is how a terminal says EOF
		return false, nil
	}
	return false, fmt.Errorf("read the output of the process: %w", err)
}

// await reads once there is something, until the deadline. That nobody has a
// terminal open is not its end: somebody may open it again, and the kernel may
// say so before it gives what was written last.
func (o *output) await(buf []byte) (n int, err error) {
	waited := o.raw.Read(func(fd uintptr) bool {
		n, err = readOnce(fd, buf)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EIO)
	})
	if waited != nil {
		return 0, waited
	}
	return n, err
}

// now reads what is there, whatever the deadline.
func (o *output) now(buf []byte) (n int, err error) {
	if cerr := o.raw.Control(func(fd uintptr) { n, err = readOnce(fd, buf) }); cerr != nil {
		return 0, cerr
	}
	return n, err
}

func readOnce(fd uintptr, buf []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), buf)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// finish tells those who drain outputs that the process has ended, even while
// they wait for data.
func finish(outputs []*os.File, ended chan<- struct{}) {
	for _, src := range outputs {
		if src != nil {
			_ = src.SetReadDeadline(time.Unix(1, 0))
		}
	}
	close(ended)
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
