package linux

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenProcess opens the process that pid and start name, as a descriptor that
// becomes readable when the process ends. It returns os.ErrProcessDone if that
// process is gone, also when another one has its pid by now. A start of zero
// is not compared.
func OpenProcess(pid int, start uint64) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	// Compared after the open: from now on the descriptor cannot change its
	// meaning, and while it was the right one the pid was not free.
	if start != 0 {
		s, err := ReadStat(pid)
		if err == nil && s.Start != start || NoProcess(err) {
			err = os.ErrProcessDone
		}
		if err != nil {
			_ = unix.Close(fd)
			return nil, err
		}
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// SignalProcess sends a signal by descriptor, and returns os.ErrProcessDone if
// the process has ended.
func SignalProcess(pidfd *os.File, sig syscall.Signal) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return os.NewSyscallError("pidfd_send_signal", sent)
}

// AwaitEnd blocks until the process has ended, which need not mean that it was
// reaped. A deadline of the descriptor ends the wait with an error.
func AwaitEnd(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n > 0
	})
}

// EndOfReaped asks the kernel how a process ended that somebody else reaped
// while pidfd was open. Kernels before 6.15 cannot tell: false.
func EndOfReaped(pidfd *os.File) (code, signal int, ok bool) {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	// It fails for a file that is closed: not ok.
	_ = raw.Control(func(fd uintptr) { code, signal, ok = EndOfPidfd(int(fd)) })
	return code, signal, ok
}

// EndOfPidfd is EndOfReaped for a bare descriptor.
func EndOfPidfd(fd int) (code, signal int, ok bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, 0, false
	}
	code, signal = StatusCode(syscall.WaitStatus(info.Exit_code))
	return code, signal, true
}

// StatusCode splits a wait status as Ended does.
func StatusCode(status syscall.WaitStatus) (code, signal int) {
	if status.Signaled() {
		return 128 + int(status.Signal()), int(status.Signal())
	}
	return status.ExitStatus(), 0
}
