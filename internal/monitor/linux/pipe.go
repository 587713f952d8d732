package linux

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Tee copies up to n bytes from one pipe to another without consuming them.
// Zero means that the source is empty and has no writer.
func Tee(from, to, n int) (int, error) {
	for {
		got, err := unix.Tee(from, to, n, unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return int(got), err
		}
	}
}

// Buffered returns how many bytes a pipe or terminal holds for its reader.
func Buffered(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// HungUp says whether the other side of a pipe or terminal has gone.
func HungUp(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// PipeFull says whether a writer of the FIFO, whose read end is fd, would have
// to wait. A container can shrink its pipe or fill it with tiny segments, so
// the number of bytes in it does not tell.
func PipeFull(fd int) bool {
	w, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(w) }()
	poll := []unix.PollFd{{Fd: int32(w), Events: unix.POLLOUT}}
	n, err := unix.Poll(poll, 0)
	return err == nil && (n == 0 || poll[0].Revents&unix.POLLOUT == 0)
}

// SignalInput makes the kernel send SIGIO to this process at each write to the
// pipe, whose non-blocking read end is fd, or no more. Who has the read end from
// another process shares the setting, not the signal.
func SignalInput(fd int, on bool) {
	flags := unix.O_NONBLOCK
	if on {
		flags |= unix.O_ASYNC
		// A pipe knows both calls; they fail only if fd is closed.
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid())
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
}

// Read reads from a descriptor that does not block.
func Read(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// SetWindowSize sets the size of a terminal by its master end.
func SetWindowSize(master *os.File, width, height uint16) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("set the size of the terminal", set)
}

// RawFD returns the descriptor of f without changing its mode, as f.Fd may.
// It is valid while f is open.
func RawFD(f *os.File) int {
	fd := -1
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(p uintptr) { fd = int(p) })
	}
	return fd
}

// Duplicate returns another descriptor for what f has open.
func Duplicate(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var failed error
	if err := raw.Control(func(from uintptr) { fd, failed = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	return fd, os.NewSyscallError("fcntl", failed)
}
