package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxPath is the longest path of a socket that Listen and Dial are sure to
// reach by name alone; for longer ones they go through the directory.
const MaxPath = 107

// address returns a name for path that fits a socket address, and what to do
// after its use.
func address(path string) (*unix.SockaddrUnix, func(), error) {
	if len(path) <= MaxPath {
		return &unix.SockaddrUnix{Name: path}, func() {}, nil
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open directory of socket %s: %w", path, err)
	}
	short := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)
	return &unix.SockaddrUnix{Name: short}, func() { _ = unix.Close(dir) }, nil
}

// Listen makes a socket at path, mode 0600, replacing what is there. The
// descriptor is closed on exec.
func Listen(path string) (int, error) {
	addr, done, err := address(path)
	if err != nil {
		return -1, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	// The mode of the descriptor is the mode of the socket that bind makes, so
	// there is no moment in which others could connect.
	if err == nil {
		err = unix.Fchmod(fd, 0o600)
	}
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen on %s: %w", path, err)
	}
	return fd, nil
}

// Listener accepts connections.
type Listener struct {
	file *os.File
	raw  syscall.RawConn
}

// NewListener takes over a descriptor that Listen made.
func NewListener(f *os.File) (*Listener, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Listener{file: f, raw: raw}, nil
}

// Close stops accepting. The socket's file stays.
func (l *Listener) Close() error { return l.file.Close() }

// SetDeadline bounds Accept; the zero time removes the bound.
func (l *Listener) SetDeadline(t time.Time) error { return l.file.SetReadDeadline(t) }

// Accept returns the next connection.
func (l *Listener) Accept() (*Conn, error) {
	var fd int
	var got error
	err := l.raw.Read(func(lfd uintptr) bool {
		for {
			fd, _, got = unix.Accept4(int(lfd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if got != unix.EINTR && got != unix.ECONNABORTED {
				return got != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = os.NewSyscallError("accept", got)
	}
	if err != nil {
		return nil, err
	}
	return NewConn(fd)
}

// Dial connects to the socket at path. It waits for room in the listener's
// queue, but not for a listener.
func Dial(ctx context.Context, path string) (*Conn, error) {
	addr, done, err := address(path)
	if err != nil {
		return nil, err
	}
	defer done()
	for {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, os.NewSyscallError("socket", err)
		}
		err = unix.Connect(fd, addr)
		if err == nil {
			return NewConn(fd)
		}
		_ = unix.Close(fd)
		if err != unix.EAGAIN && err != unix.EINTR {
			return nil, fmt.Errorf("connect to %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w", path, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
